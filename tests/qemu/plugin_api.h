/* plugin_api.h: the few declarations of QEMU's plugin interface (version 1: QEMU 4.2 to 8.2) that
 * rvcost.c uses, so that it builds without QEMU's headers. */
#ifndef PLUGIN_API_H
#define PLUGIN_API_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t plugin_id;
typedef uint32_t memory_access; /* opaque */
struct qemu_plugin_tb;          /* a block of instructions that is being translated */
struct qemu_plugin_insn;

enum { NO_REGISTERS = 0 };      /* the callback reads and writes no guest registers */
enum { READS_AND_WRITES = 3 };  /* which memory accesses to report */
enum { ADD_U64 = 0 };           /* what an inline operation does */

typedef void on_translation(plugin_id id, struct qemu_plugin_tb *block);
typedef void on_execution(unsigned cpu, void *data);
typedef void on_access(unsigned cpu, memory_access access, uint64_t address, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, on_translation *callback);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, on_execution *callback,
    int registers, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int operation,
    void *counter, uint64_t operand);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, on_access *callback,
    int registers, int which, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *insn); /* NULL: none */
unsigned qemu_plugin_mem_size_shift(memory_access access); /* log2 of the bytes */

#endif
