/* aotc_cusim.cpp: runs the blocks of a grid, one after the other, each thread a fiber.
 *
 * A fiber runs until it waits (for its warp or its block) or is done.  As soon as no lane of a
 * warp can go on, either all 32 wait at the same place and are released together, or some of them
 * never will be: an error.  The same holds for the warps of a block and a barrier. */
#include "aotc_cusim.h"
#include "aotc_cusim_fiber.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <pthread.h>
#include <string>
#include <vector>

namespace cusim {

Thread *current = nullptr;
Block block;

namespace {

constexpr unsigned MOST_THREADS = 1024, LANES = 32;
constexpr uint64_t SEED = 0x9e3779b97f4a7c15;

/* The order in which a grid's blocks, a block's warps and a warp's lanes take their turns. */
enum Order : uint8_t { FORWARD, REVERSE, RANDOM };
enum State : uint8_t { READY, AT_WARP, AT_BLOCK, DONE };

/* What the scheduler knows about a thread. */
struct Lane {
    State state;
    Site site;
    bool second; /* which of its warp's two sets of slots it uses next */
};

/* Values travelling between the lanes of a warp; two sets, because a lane may come to the next
 * exchange before another one has read this one's values. */
struct Warp {
    Slot slots[2][LANES];
};

/* Everything of the launch that runs; launches take turns. */
struct Launch {
    std::mutex one_at_a_time;
    Fibers fibers;
    std::vector<Thread> threads;
    std::vector<Lane> lanes;
    std::vector<Warp> warps;
    std::vector<unsigned> order; /* of the warps of this block */
    const std::function<void()> *body = nullptr;
    const char *kernel = "";
    size_t smem_bytes = 0, smem_most = 0; /* dynamic; with static buffers */
    sigjmp_buf escape;
    Order kind = FORWARD;
    uint64_t random = SEED;
    bool asked = false; /* an order has been set, or AOTC_CUSIM_ORDER read */
    pthread_t os_thread;
};

Launch launched;

uint64_t next_random()
{
    launched.random ^= launched.random << 13;
    launched.random ^= launched.random >> 7;
    launched.random ^= launched.random << 17;
    return launched.random;
}

Lane &self()
{
    return launched.lanes[current->number];
}

/* The file's name without folders. */
const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
}

std::string whereabouts(unsigned number)
{
    const Lane &lane = launched.lanes[number];
    if (lane.state == DONE)
        return thread_name(number) + " has ended";
    char text[160];
    snprintf(text, sizeof text, " is at %s (%s:%d)", lane.site.function,
             base_name(lane.site.file), lane.site.line);
    return thread_name(number) + text;
}

/* ------------------------------------------------------------------ turns */

void begin_interval()
{
    block.interval++;
    for (Thread &t : launched.threads)
        t.interval = 0;
}

/* Poison the shared memory and start all threads over. */
void begin_block(Index3 index)
{
    begin_smem(launched.threads.size(), launched.smem_bytes, launched.smem_most);
    block.index = index;
    begin_interval();
    block.first = block.interval;
    for (size_t i = 0; i < launched.lanes.size(); i++) {
        Lane &lane = launched.lanes[i];
        lane.state = READY;
        lane.second = false;
        launched.fibers.prepare(i, [] {
            (*launched.body)();
            self().state = DONE;
            launched.fibers.pause();
        });
    }
}

void resume(unsigned number)
{
    current = &launched.threads[number];
    launched.fibers.resume(number);
    current = nullptr;
}

/* Give every ready lane of a warp its turn, in the order asked for. */
void run_lanes(unsigned warp)
{
    unsigned order[LANES];
    for (unsigned i = 0; i < LANES; i++)
        order[i] = launched.kind == REVERSE ? LANES - 1 - i : i;
    if (launched.kind == RANDOM)
        for (unsigned i = LANES - 1; i > 0; i--)
            std::swap(order[i], order[next_random() % (i + 1)]);
    for (unsigned i : order)
        if (launched.lanes[warp * LANES + i].state == READY)
            resume(warp * LANES + i);
}

bool same_place(const Site &a, const Site &b)
{
    return a.line == b.line && a.function == b.function && a.file == b.file;
}

/* A thread that waits for others which never come, and one of those: how the error ends. */
[[noreturn]] void diverged(unsigned waits, unsigned other, const char *who)
{
    current = &launched.threads[waits];
    const std::string there = whereabouts(other);
    const Site site = launched.lanes[waits].site;
    fault(cudaErrorLaunchFailure, "%s (%s:%d) is not reached by all %s: %s", site.function,
          base_name(site.file), site.line, who, there.c_str());
}

/* Run a warp until its lanes are done or wait for the block. */
void run_warp(unsigned warp)
{
    Lane *const lanes = &launched.lanes[warp * LANES];
    for (;;) {
        run_lanes(warp);
        const Lane *const waiting = std::find_if(
            lanes, lanes + LANES, [](const Lane &lane) { return lane.state == AT_WARP; });
        if (waiting == lanes + LANES)
            return;
        const unsigned first = static_cast<unsigned>(waiting - lanes);
        for (unsigned i = 0; i < LANES; i++)
            if (lanes[i].state != AT_WARP || !same_place(lanes[i].site, waiting->site))
                diverged(warp * LANES + first, warp * LANES + i, "lanes of the warp");
        for (unsigned i = 0; i < LANES; i++)
            lanes[i].state = READY;
    }
}

/* Run all warps until the next barrier; true if the block goes on behind it. */
bool run_interval()
{
    for (unsigned warp : launched.order)
        run_warp(warp);
    const auto &lanes = launched.lanes;
    const auto at = std::find_if(lanes.begin(), lanes.end(),
                                 [](const Lane &lane) { return lane.state == AT_BLOCK; });
    if (at == lanes.end())
        return false;
    for (size_t i = 0; i < lanes.size(); i++)
        if (lanes[i].state != AT_BLOCK || !same_place(lanes[i].site, at->site))
            diverged(static_cast<unsigned>(at - lanes.begin()), static_cast<unsigned>(i),
                     "threads of the block");
    begin_interval();
    for (Lane &lane : launched.lanes)
        lane.state = READY;
    return true;
}

void run_block(Index3 index)
{
    begin_block(index);
    const size_t warps = launched.order.size();
    if (launched.kind == RANDOM)
        for (size_t i = warps - 1; i > 0; i--)
            std::swap(launched.order[i], launched.order[next_random() % (i + 1)]);
    while (run_interval()) {
    }
}

/* ------------------------------------------------------------------ faults of the CPU */

struct sigaction previous_segv, previous_bus, previous_fpe;

/* An access outside mapped memory, or a division by zero, while a thread of the kernel runs. */
void on_signal(int signal, siginfo_t *info, void *)
{
    if (current == nullptr || !pthread_equal(pthread_self(), launched.os_thread)) {
        sigaction(signal, signal == SIGSEGV ? &previous_segv
                          : signal == SIGBUS ? &previous_bus : &previous_fpe, nullptr);
        return; /* not ours: it happens again, under its owner's handler */
    }
    if (signal == SIGFPE)
        fault(cudaErrorLaunchFailure, "an integer division by zero");
    uintptr_t begin, end;
    const uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
    if (!allocation_near(info->si_addr, &begin, &end))
        fault(cudaErrorIllegalAddress, "an access to memory that is not mapped (%p)",
              info->si_addr);
    if (at >= end)
        fault(cudaErrorIllegalAddress, "an access %zu bytes behind the end of device memory of "
              "%zu bytes", static_cast<size_t>(at - end), static_cast<size_t>(end - begin));
    fault(cudaErrorIllegalAddress, "an access %zu bytes before device memory of %zu bytes",
          static_cast<size_t>(begin - at), static_cast<size_t>(end - begin));
}

/* Handlers for the time of a launch, on a stack of their own: the fiber's may be used up. */
class Signals {
public:
    Signals() : stack(256 << 10)
    {
        struct sigaction action = {};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        stack_t alternate = {};
        alternate.ss_sp = stack.data();
        alternate.ss_size = stack.size();
        sigaltstack(&alternate, &previous_stack);
        sigaction(SIGSEGV, &action, &previous_segv);
        sigaction(SIGBUS, &action, &previous_bus);
        sigaction(SIGFPE, &action, &previous_fpe);
    }

    ~Signals()
    {
        sigaction(SIGSEGV, &previous_segv, nullptr);
        sigaction(SIGBUS, &previous_bus, nullptr);
        sigaction(SIGFPE, &previous_fpe, nullptr);
        sigaltstack(&previous_stack, nullptr);
    }

private:
    std::vector<unsigned char> stack;
    stack_t previous_stack;
};

/* ------------------------------------------------------------------ a launch */

/* What a GPU would refuse; nullptr if nothing. */
const char *refusal(const void *function, dim3 grid, dim3 shape, size_t smem_bytes)
{
    const size_t threads = size_t{1} * shape.x * shape.y * shape.z;
    if (threads == 0 || threads > MOST_THREADS || shape.z > 64)
        return "a block has 1 to 1024 threads, at most 64 of them deep";
    if (threads % LANES != 0)
        return "the threads of a block are not a multiple of 32";
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535
        || grid.z > 65535)
        return "a grid has 1 to 2^31-1 blocks in x, 1 to 65535 in y and z";
    if (smem_bytes > smem_allowed(function))
        return "more dynamic shared memory than allowed (48 KB, or what AOTC_ALLOW_SMEM said)";
    return nullptr;
}

/* Run every block of the grid once: in order, backwards, or in steps that meet each once. */
void run_blocks(dim3 grid)
{
    const uint64_t total = uint64_t{1} * grid.x * grid.y * grid.z;
    uint64_t at = launched.kind == REVERSE ? total - 1 : 0;
    uint64_t step = launched.kind == REVERSE ? total - 1 : 1;
    if (launched.kind == RANDOM) {
        at = next_random() % total;
        do
            step = 1 + next_random() % total;
        while (std::gcd(step, total) != 1);
    }
    for (uint64_t k = 0; k < total; k++, at = (at + step) % total)
        run_block({static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                   static_cast<unsigned>(at / grid.x / grid.y)});
}

/* Sizes, indices and turns that all blocks of the grid share. */
bool begin_grid(dim3 grid, dim3 shape, size_t smem_bytes)
{
    const unsigned threads = shape.x * shape.y * shape.z;
    launched.os_thread = pthread_self();
    launched.smem_bytes = smem_bytes;
    launched.threads.resize(threads);
    launched.lanes.resize(threads);
    launched.warps.resize(threads / LANES);
    launched.order.resize(threads / LANES);
    block.shape = shape;
    block.grid = grid;
    for (unsigned i = 0; i < threads; i++)
        launched.threads[i] = {{i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y},
                               static_cast<uint16_t>(i), 0};
    for (unsigned i = 0; i < launched.order.size(); i++)
        launched.order[i] = launched.kind == REVERSE
                                ? static_cast<unsigned>(launched.order.size()) - 1 - i : i;
    return launched.fibers.reserve(threads) && reserve_smem();
}

}

std::string thread_name(unsigned number)
{
    const Index3 &t = launched.threads[number].index;
    char text[60];
    snprintf(text, sizeof text, "thread (%u,%u,%u)", t.x, t.y, t.z);
    return text;
}

void run_grid(const char *kernel, const void *function, dim3 grid, dim3 shape, size_t smem_bytes,
              const std::function<void()> &body)
{
    const std::lock_guard<std::mutex> guard(launched.one_at_a_time);
    if (cudaPeekAtLastError() != cudaSuccess)
        return;
    const cudaError_t told = next_failure();
    if (told != cudaSuccess) {
        set_error(told, (std::string(kernel) + ": was told to fail").c_str());
        return;
    }
    if (!launched.asked)
        aotc_cusim_set_order(getenv("AOTC_CUSIM_ORDER"));
    launched.kernel = kernel;
    launched.smem_most = smem_allowed(function) > SMEM_DEFAULT ? SMEM_MOST : SMEM_DEFAULT;
    launched.body = &body;
    const char *why = refusal(function, grid, shape, smem_bytes);
    if (why != nullptr) {
        set_error(cudaErrorInvalidConfiguration, (std::string(kernel) + ": " + why).c_str());
        return;
    }
    const Signals signals;
    if (sigsetjmp(launched.escape, 1) == 0) {
        if (!begin_grid(grid, shape, smem_bytes))
            fault(cudaErrorMemoryAllocation, "no memory for stacks and shared memory");
        run_blocks(grid);
    }
    current = nullptr;
}

void start_grid(cudaStream_t stream, const char *kernel, const void *function, dim3 grid,
                dim3 shape, size_t smem_bytes, const std::function<void()> &body)
{
    submit(stream, [=] {
        run_grid(kernel, function, grid, shape, smem_bytes, body);
        return cudaPeekAtLastError();
    });
}

/* The fibers are left as they are: what lies on their stacks is never looked at again. */
void fault(cudaError_t code, const char *format, ...)
{
    char what[400], text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (current == nullptr)
        snprintf(text, sizeof text, "%s: %s", launched.kernel, what);
    else
        snprintf(text, sizeof text, "%s, block (%u,%u,%u), %s: %s", launched.kernel,
                 block.index.x, block.index.y, block.index.z,
                 thread_name(current->number).c_str(), what);
    set_error(code, text);
    current = nullptr;
    siglongjmp(launched.escape, 1);
}

/* ------------------------------------------------------------------ waiting */

void block_barrier(Site site)
{
    self().state = AT_BLOCK;
    self().site = site;
    launched.fibers.pause();
}

namespace {

void wait_for_warp(Site site)
{
    self().state = AT_WARP;
    self().site = site;
    launched.fibers.pause();
}

}

void warp_barrier(Site site)
{
    wait_for_warp(site);
    current->interval++;
}

const Slot *exchange(Site site, const void *value, size_t bytes)
{
    Slot *const slots = launched.warps[current->number / LANES].slots[self().second];
    self().second = !self().second;
    memcpy(slots[lane()].bytes, value, bytes);
    wait_for_warp(site);
    return slots;
}

unsigned ballot(Site site, bool condition)
{
    const Slot *slots = exchange(site, &condition, sizeof condition);
    unsigned bits = 0;
    for (unsigned i = 0; i < LANES; i++)
        bits |= static_cast<unsigned>(slots[i].bytes[0] & 1) << i;
    return bits;
}

}

void aotc_cusim_set_order(const char *text)
{
    using namespace cusim;
    const char *const colon = text == nullptr ? nullptr : strchr(text, ':');
    const uint64_t seed = colon == nullptr ? 0 : strtoull(colon + 1, nullptr, 10);
    launched.asked = true;
    launched.kind = FORWARD;
    if (text != nullptr && strncmp(text, "reverse", 7) == 0)
        launched.kind = REVERSE;
    if (text != nullptr && strncmp(text, "random", 6) == 0)
        launched.kind = RANDOM;
    launched.random = SEED ^ (seed * 0x2545f4914f6cdd1d);
    launched.random += launched.random == 0;
}
