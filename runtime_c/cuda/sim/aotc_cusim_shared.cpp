/* aotc_cusim_shared.cpp: a block's shared memory, the checks of its accesses, and copies. */
#include "aotc_cusim.h"

#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace cusim {

unsigned char *smem = nullptr;
Cell *cells = nullptr;

namespace {

/* A copy that a cp.async asked for: performed at its wait. */
struct Copy {
    unsigned char *dst;
    const void *src;
    size_t bytes, element;
    bool valid;
};

/* One thread's copies: those not committed yet, and the committed groups. */
struct Copies {
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
};

std::vector<Copies> copies; /* by thread */
std::vector<std::pair<const char *, unsigned char *>> statics; /* by site, of this block */
size_t dynamic_bytes = 0, static_bytes = 0, most_bytes = SMEM_DEFAULT;

constexpr uint16_t WARP = 0x8000; /* in Stamp::who: several lanes of the warp in the other bits */

void forget(std::vector<Copy> &group)
{
    for (const Copy &copy : group)
        for (size_t i = 0; i < copy.bytes; i += copy.element)
            cell_of(copy.dst + i).write = Stamp{};
    group.clear();
}

/* True if a stamp of this interval lies before an aotc_syncwarp of the current thread's warp. */
bool before_warp_barrier(const Stamp &stamp)
{
    const unsigned warp = stamp.who & WARP ? stamp.who & ~WARP & 0xffffu : stamp.who / 32u;
    return stamp.who != SEVERAL && warp == current->number / 32u
           && stamp.warp_interval < current->interval;
}

std::string who(const Stamp &stamp)
{
    if (stamp.who == SEVERAL)
        return "threads of several warps";
    if (stamp.who & WARP)
        return "lanes of warp " + std::to_string(stamp.who & ~WARP & 0xffff);
    return thread_name(stamp.who);
}

/* Stop if the element's last write is not ordered before this access; verb says what that is. */
void after_write(const Stamp &w, const char *verb, const void *p)
{
    const size_t at = static_cast<size_t>(static_cast<const unsigned char *>(p) - smem);
    if (w.interval == COPYING)
        fault(cudaErrorLaunchFailure, "%s shared memory (byte %zu) that a cp.async of %s has still "
              "to write: an aotc_cp_wait is missing", verb, at, who(w).c_str());
    if (w.interval == block.interval && w.who != current->number && !before_warp_barrier(w))
        fault(cudaErrorLaunchFailure, "race: %s shared memory (byte %zu) that %s has written "
              "since the last barrier: an aotc_syncthreads is missing", verb, at, who(w).c_str());
}

}

/* ------------------------------------------------------------------ a block's life */

bool reserve_smem()
{
    const size_t most = SMEM_MOST + SMEM_DEFAULT;
    if (smem != nullptr)
        return true;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(nullptr, most, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *states = mmap(nullptr, most * sizeof(Cell), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED || states == MAP_FAILED)
        return false;
    smem = static_cast<unsigned char *>(memory);
    cells = static_cast<Cell *>(states);
    return true;
}

void begin_smem(size_t threads, size_t bytes, size_t most)
{
    most_bytes = most;
    for (Copies &mine : copies) {
        forget(mine.open);
        for (std::vector<Copy> &group : mine.groups)
            forget(group);
        mine.groups.clear();
    }
    if (copies.size() < threads)
        copies.resize(threads);
    statics.clear();
    static_bytes = 0;
    dynamic_bytes = bytes;
    memset(smem, 0xff, bytes);
}

unsigned char *dynamic_end()
{
    return smem + dynamic_bytes;
}

unsigned char *find_static_smem(const char *site, size_t bytes)
{
    for (const auto &known : statics)
        if (known.first == site)
            return known.second;
    if (static_bytes + bytes > SMEM_DEFAULT || dynamic_bytes + static_bytes + bytes > most_bytes)
        fault(cudaErrorInvalidConfiguration, "%zu bytes of dynamic and %zu of static shared memory "
              "are too many", dynamic_bytes, static_bytes + bytes);
    unsigned char *const at = smem + (dynamic_bytes + 15) / 16 * 16 + static_bytes;
    static_bytes += (bytes + 15) / 16 * 16;
    memset(at, 0xff, bytes);
    statics.emplace_back(site, at);
    return at;
}

/* ------------------------------------------------------------------ checks */

void check_read(const void *p, size_t)
{
    Cell &cell = cell_of(p);
    Stamp &r = cell.read;
    if (cell.write.interval < block.first)
        fault(cudaErrorLaunchFailure, "reads shared memory (byte %zu) that no thread of the block "
              "has written", static_cast<size_t>(static_cast<const unsigned char *>(p) - smem));
    after_write(cell.write, "reads", p);
    const unsigned warp = current->number / 32u;
    const unsigned reader = r.who & WARP ? r.who & ~WARP & 0xffffu : r.who / 32u;
    if (r.interval != block.interval || r.who == current->number)
        r = now();
    else if (r.who == SEVERAL || reader != warp)
        r.who = SEVERAL;
    else if (r.warp_interval < current->interval)
        r = now();
    else
        r.who = static_cast<uint16_t>(WARP | warp);
}

void check_write(const void *p, size_t bytes, const void *value)
{
    Cell &cell = cell_of(p);
    const Stamp &r = cell.read;
    const bool known = cell.write.interval >= block.first && cell.write.interval != COPYING;
    if (known && value != nullptr && memcmp(p, value, bytes) == 0)
        return; /* whoever is first, the same value is there */
    after_write(cell.write, "writes", p);
    if (r.interval == block.interval && r.who != current->number && !before_warp_barrier(r))
        fault(cudaErrorLaunchFailure, "race: writes shared memory (byte %zu) that %s has read "
              "since the last barrier: an aotc_syncthreads is missing",
              static_cast<size_t>(static_cast<const unsigned char *>(p) - smem), who(r).c_str());
    cell.write = now();
}

void outside(const void *p, const void *begin, const void *end, size_t size)
{
    const std::ptrdiff_t offset = static_cast<const unsigned char *>(p)
                                  - static_cast<const unsigned char *>(begin);
    const std::ptrdiff_t bytes = static_cast<const unsigned char *>(end)
                                 - static_cast<const unsigned char *>(begin);
    fault(cudaErrorIllegalAddress, "out of bounds: element %td of a shared buffer of %td elements "
          "of %zu bytes", offset / static_cast<std::ptrdiff_t>(size),
          bytes / static_cast<std::ptrdiff_t>(size), size);
}

void require_global_alignment(const void *p, size_t bytes)
{
    if (reinterpret_cast<uintptr_t>(p) % bytes != 0)
        fault(cudaErrorMisalignedAddress, "a global access of %zu bytes is not aligned to them",
              bytes);
}

/* ------------------------------------------------------------------ asynchronous copies */

void copy_later(unsigned char *dst, const void *src, size_t bytes, size_t element, bool valid)
{
    if (valid)
        require_global_alignment(src, bytes);
    /* known before a check may stop the block: the next one forgets what it marked */
    copies[current->number].open.push_back({dst, src, bytes, element, valid});
    for (size_t i = 0; i < bytes; i += element) {
        check_write(dst + i, element, nullptr);
        cell_of(dst + i).write = {COPYING, 0, current->number};
    }
}

void commit_copies()
{
    Copies &mine = copies[current->number];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}

void wait_for_copies(int last)
{
    std::vector<std::vector<Copy>> &groups = copies[current->number].groups;
    while (groups.size() > static_cast<size_t>(last)) {
        for (const Copy &copy : groups.front()) {
            if (copy.valid)
                memcpy(copy.dst, copy.src, copy.bytes);
            else
                memset(copy.dst, 0, copy.bytes);
            for (size_t i = 0; i < copy.bytes; i += copy.element)
                cell_of(copy.dst + i).write = now();
        }
        groups.erase(groups.begin());
    }
}

}
