/* aotc_cusim_fiber.cpp: switching stacks. */
#include "aotc_cusim_fiber.h"

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__) && !defined(AOTC_CUSIM_UCONTEXT)

/* Save the registers a function must keep on the stack, its top in *from; the other way round for
 * `to`.  ucontext would do, but makes a system call for the signal mask at every switch. */
extern "C" void aotc_cusim_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden aotc_cusim_switch\n"
        ".globl aotc_cusim_switch\n"
        ".type aotc_cusim_switch, @function\n"
        "aotc_cusim_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size aotc_cusim_switch, .-aotc_cusim_switch\n");

namespace {

struct Context {
    void *top = nullptr;
};

void switch_to(Context &from, Context &to)
{
    aotc_cusim_switch(&from.top, to.top);
}

/* The first switch pops six registers and returns into entry, which must find the stack as a call
 * leaves it: 8 bytes, where the return address would be, below a multiple of 16. */
void start(Context &context, unsigned char *stack, void (*entry)())
{
    void **top = reinterpret_cast<void **>(stack + cusim::STACK_BYTES - 56);
    memset(top - 7, 0, 8 * sizeof *top);
    top[-1] = reinterpret_cast<void *>(entry);
    context.top = top - 7;
}

}

#else
#include <ucontext.h>

namespace {

struct Context {
    ucontext_t context;
};

void switch_to(Context &from, Context &to)
{
    swapcontext(&from.context, &to.context);
}

void start(Context &context, unsigned char *stack, void (*entry)())
{
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = cusim::STACK_BYTES;
    context.context.uc_link = nullptr;
    makecontext(&context.context, entry, 0);
}

}
#endif

namespace cusim {

struct Fibers::Contexts {
    Context scheduler;
    std::vector<Context> fibers;
};

namespace {

size_t slot_bytes()
{
    return STACK_BYTES + static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}

Fibers::Fibers() : contexts(new Contexts) {}

Fibers::~Fibers()
{
    if (stacks != nullptr)
        munmap(stacks, count * slot_bytes());
    delete contexts;
}

bool Fibers::reserve(size_t wanted)
{
    if (wanted <= count)
        return true;
    const size_t slot = slot_bytes();
    void *map = mmap(nullptr, wanted * slot, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    if (stacks != nullptr)
        munmap(stacks, count * slot);
    stacks = static_cast<unsigned char *>(map);
    for (size_t i = 0; i < wanted; i++)
        mprotect(stacks + i * slot, slot - STACK_BYTES, PROT_NONE);
    count = wanted;
    contexts->fibers.resize(count);
    return true;
}

void Fibers::prepare(size_t i, Entry entry)
{
    const size_t slot = slot_bytes();
    start(contexts->fibers[i], stacks + i * slot + (slot - STACK_BYTES), entry);
}

void Fibers::resume(size_t i)
{
    active = i;
    switch_to(contexts->scheduler, contexts->fibers[i]);
}

void Fibers::pause()
{
    switch_to(contexts->fibers[active], contexts->scheduler);
}

}
