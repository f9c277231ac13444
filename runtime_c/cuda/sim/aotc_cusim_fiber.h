/* aotc_cusim_fiber.h: stackful coroutines of one OS thread, x86-64 by hand, elsewhere ucontext. */
#ifndef AOTC_CUSIM_FIBER_H
#define AOTC_CUSIM_FIBER_H

#include <cstddef>
#include <vector>

namespace cusim {

constexpr size_t STACK_BYTES = 64 << 10;

/* A pool of stacks, each above a guard page; made once, reused by every block. */
class Fibers {
public:
    /* Called by a fiber on its own stack; it ends with finish(), never by returning. */
    using Entry = void (*)();

    Fibers();
    ~Fibers();
    Fibers(const Fibers &) = delete;
    Fibers &operator=(const Fibers &) = delete;

    /* Have fibers 0..count-1; false if there is no memory for their stacks. */
    bool reserve(size_t count);

    /* Let fiber i begin with entry() at its next turn. */
    void prepare(size_t i, Entry entry);

    /* From the scheduler: give the turn to fiber i until it pauses. */
    void resume(size_t i);

    /* From a fiber: give the turn back to the scheduler. */
    void pause();

    /* The running fiber; meaningful between resume and pause. */
    size_t running() const { return active; }

private:
    struct Contexts;
    Contexts *contexts;
    unsigned char *stacks = nullptr;
    size_t count = 0, active = 0;
};

}

#endif
