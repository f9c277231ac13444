/* rvcost.c: a QEMU plugin that counts what a RISC-V program executes, per function.
 *
 *     cc -O2 -shared -fPIC -o librvcost.so rvcost.c
 *     qemu-riscv64 -cpu rv64,v=true,vext_spec=v1.0,vlen=256,elen=64 \
 *         -plugin ./librvcost.so,out=counts.json,begin=F,end=G PROGRAM
 *
 * Counting starts anew when F is executed and ends when G is: two functions of the program that do
 * nothing else.  One thread may run in between.  The file has a JSON object per line and function:
 *
 *     scalar        instructions outside the vector extension
 *     vset          vsetvli and its kin
 *     vector        all other vector instructions
 *     micro_ops     of these: one for each register that an instruction works on.  With LMUL 4 an
 *                   addition has 4, with LMUL 1/2 it has 1; a widening one twice as many; a
 *                   permutation of a group (vrgather.vv, vcompress) the square.  vl does not
 *                   count: pipelines of many cores step through the whole group, and the interface
 *                   offers no registers to read it from, so short vectors are charged in full
 *     multiply_adds those of multiply-add instructions
 *     elements      moved by strided and indexed accesses, which go one by one; not in micro_ops
 *     loaded, stored  bytes, of scalar and vector accesses; of vectors the elements moved, so that
 *                   vl and masks do count
 *     spills        whole vector registers stored to the stack or loaded from there; a compiler
 *                   that vectorises a loop over an array on the stack makes such moves too
 *
 * Emulated time means nothing; these counts are the same on every run. */
#include "decode.h"
#include "plugin_api.h"

#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 1;

enum { STACK_REACH = 1 << 18 }; /* bytes around the last access by sp that count as the stack */

typedef struct counts {
    uint64_t scalar, vset, vector, micro_ops, multiply_adds, elements, loaded, stored, spills;
} counts;

typedef struct function {
    struct function *next;
    counts now;
    char name[];
} function;

/* A translated instruction that needs more than a counter. */
typedef struct site {
    function *owner;
    insn_cost cost;
    bool started; /* of a move of whole registers: it has begun to move elements */
} site;

static function *functions;
static const char *begin_name, *end_name, *out_path;
static int vtype;            /* of the last vset; -1: unknown */
static uint64_t stack_near;  /* address of the last access by sp */
static bool reported;

static void fail(const char *what)
{
    fprintf(stderr, "rvcost: %s\n", what);
    exit(3);
}

static function *function_named(const char *name)
{
    for (function *f = functions; f != NULL; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            return f;
        }
    }
    function *f = calloc(1, sizeof *f + strlen(name) + 1);
    if (f == NULL) {
        fail("out of memory");
    }
    strcpy(f->name, name);
    f->next = functions;
    functions = f;
    return f;
}

/* ---- while the program runs ---- */

static void at_begin(unsigned cpu, void *data)
{
    (void)cpu;
    (void)data;
    for (function *f = functions; f != NULL; f = f->next) {
        f->now = (counts){0};
    }
}

static void at_end(unsigned cpu, void *data)
{
    (void)cpu;
    (void)data;
    if (reported) {
        return;
    }
    reported = true;
    FILE *out = fopen(out_path, "w");
    if (out == NULL) {
        fail("the file for the counts cannot be written");
    }
    for (const function *f = functions; f != NULL; f = f->next) {
        const counts c = f->now;
        if (c.scalar + c.vset + c.vector == 0) {
            continue;
        }
        fprintf(out, "{\"function\": \"%s\", \"scalar\": %lu, \"vset\": %lu, \"vector\": %lu, "
            "\"micro_ops\": %lu, \"multiply_adds\": %lu, \"elements\": %lu, \"loaded\": %lu, "
            "\"stored\": %lu, \"spills\": %lu}\n", f->name, c.scalar, c.vset, c.vector,
            c.micro_ops, c.multiply_adds, c.elements, c.loaded, c.stored, c.spills);
    }
    if (fclose(out) != 0) {
        fail("the file for the counts cannot be written");
    }
}

static void at_vset(unsigned cpu, void *data)
{
    (void)cpu;
    vtype = ((const site *)data)->cost.vtype;
}

/* Micro-ops of a vector instruction under the current vtype. */
static uint64_t micro_ops(const insn_cost *cost)
{
    static const unsigned eighths[8] = {8, 16, 32, 64, 0, 1, 2, 4}; /* LMUL * 8 by vlmul */
    if (cost->fixed != 0) {
        return cost->fixed;
    }
    if (vtype < 0) {
        fail("vsetvl with a type from a register: its micro-ops cannot be counted");
    }
    uint64_t group = (uint64_t)eighths[vtype & 7] * cost->scale_up;
    if (cost->width_bytes != 0) {
        group = group * cost->width_bytes >> (vtype >> 3 & 7);
    }
    const uint64_t registers = group < 8 ? 1 : group / 8;
    return (cost->squared ? registers * registers : registers) * cost->fields;
}

static void at_vector(unsigned cpu, void *data)
{
    const site *s = data;
    const uint64_t ops = micro_ops(&s->cost);
    (void)cpu;
    s->owner->now.micro_ops += ops;
    s->owner->now.multiply_adds += s->cost.multiply_add ? ops : 0;
}

static void at_stack_access(unsigned cpu, memory_access access, uint64_t address, void *data)
{
    (void)cpu;
    (void)access;
    (void)data;
    stack_near = address;
}

static bool on_stack(uint64_t address)
{
    return address + STACK_REACH > stack_near && address < stack_near + STACK_REACH;
}

static void at_vector_load(unsigned cpu, memory_access access, uint64_t address, void *data)
{
    const site *s = data;
    (void)cpu;
    (void)address;
    s->owner->now.loaded += 1ull << qemu_plugin_mem_size_shift(access);
    s->owner->now.elements += s->cost.kind == ELEMENTS;
}

static void at_vector_store(unsigned cpu, memory_access access, uint64_t address, void *data)
{
    const site *s = data;
    (void)cpu;
    (void)address;
    s->owner->now.stored += 1ull << qemu_plugin_mem_size_shift(access);
    s->owner->now.elements += s->cost.kind == ELEMENTS;
}

/* Elements of a whole register are reported one by one, from its lowest address on: the first one
 * tells where it lies. */
static void at_whole_register(unsigned cpu, memory_access access, uint64_t address, void *data)
{
    site *s = data;
    (void)cpu;
    (void)access;
    if (!s->started && on_stack(address)) {
        s->owner->now.spills += s->cost.fixed;
    }
    s->started = true;
}

static void before_whole_register(unsigned cpu, void *data)
{
    (void)cpu;
    ((site *)data)->started = false;
}

/* ---- while it is translated ---- */

static void watch_vector(struct qemu_plugin_insn *insn, site *s, bool store)
{
    qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &s->owner->now.vector, 1);
    if (s->cost.kind == VECTOR) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, at_vector, NO_REGISTERS, s);
    }
    if (s->cost.whole_register) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, before_whole_register, NO_REGISTERS, s);
        qemu_plugin_register_vcpu_mem_cb(insn, at_whole_register, NO_REGISTERS, READS_AND_WRITES,
            s);
    }
    qemu_plugin_register_vcpu_mem_cb(insn, store ? at_vector_store : at_vector_load, NO_REGISTERS,
        READS_AND_WRITES, s);
}

static void watch_scalar(struct qemu_plugin_insn *insn, const insn_cost *cost, counts *now)
{
    qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &now->scalar, 1);
    if (cost->loaded != 0) {
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &now->loaded, cost->loaded);
    }
    if (cost->stored != 0) {
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &now->stored, cost->stored);
    }
    if (cost->stack_based) {
        qemu_plugin_register_vcpu_mem_cb(insn, at_stack_access, NO_REGISTERS, READS_AND_WRITES,
            NULL);
    }
}

static void watch(struct qemu_plugin_insn *insn)
{
    const char *symbol = qemu_plugin_insn_symbol(insn);
    const char *name = symbol == NULL ? "?" : symbol;
    uint32_t word = 0;
    const size_t size = qemu_plugin_insn_size(insn);
    memcpy(&word, qemu_plugin_insn_data(insn), size < sizeof word ? size : sizeof word);
    const insn_cost cost = decode(word, size);
    function *owner = function_named(name);
    if (strcmp(name, begin_name) == 0) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, at_begin, NO_REGISTERS, NULL);
    } else if (strcmp(name, end_name) == 0) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, at_end, NO_REGISTERS, NULL);
    } else if (cost.kind == SCALAR) {
        watch_scalar(insn, &cost, &owner->now);
    } else {
        site *s = malloc(sizeof *s);
        if (s == NULL) {
            fail("out of memory");
        }
        *s = (site){owner, cost, false};
        if (cost.kind == VSET) {
            qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &owner->now.vset, 1);
            qemu_plugin_register_vcpu_insn_exec_cb(insn, at_vset, NO_REGISTERS, s);
        } else {
            watch_vector(insn, s, bits(word, 0, 7) == 0x27);
        }
    }
}

static void on_block(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        watch(qemu_plugin_tb_get_insn(block, i));
    }
}

/* The value of argument "key=value", or NULL. */
static const char *argument(int argc, char **argv, const char *key)
{
    const size_t length = strlen(key);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], key, length) == 0 && argv[i][length] == '=') {
            return strdup(argv[i] + length + 1);
        }
    }
    return NULL;
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    out_path = argument(argc, argv, "out");
    begin_name = argument(argc, argv, "begin");
    end_name = argument(argc, argv, "end");
    if (out_path == NULL || begin_name == NULL || end_name == NULL) {
        fprintf(stderr, "rvcost: give out=FILE,begin=FUNCTION,end=FUNCTION\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    return 0;
}
