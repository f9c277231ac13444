/* aotc_cusim_shared.cpp: a block's shared memory, the checks of its accesses, asynchronous copies,
 * and the warp-wide matrix instructions. */
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
    for (size_t i = 0; i < bytes; i += element) {
        check_write(dst + i, element, nullptr);
        cell_of(dst + i).write = {COPYING, 0, current->number};
    }
    copies[current->number].open.push_back({dst, src, bytes, element, valid});
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

/* ------------------------------------------------------------------ matrix instructions */

void load_matrix(Site site, uint32_t (&r)[4], const void *row, bool transposed)
{
    const Slot *const slots = exchange(site, row, 8 * sizeof(uint16_t));
    const unsigned group = lane() / 4, pair = lane() % 4 * 2;
    for (unsigned tile = 0; tile < 4; tile++) {
        uint16_t element[2];
        for (unsigned e = 0; e < 2; e++) {
            const unsigned from = transposed ? pair + e : group, at = transposed ? group : pair + e;
            memcpy(&element[e], slots[8 * tile + from].bytes + at * sizeof(uint16_t),
                   sizeof(uint16_t));
        }
        r[tile] = static_cast<uint32_t>(element[0]) | static_cast<uint32_t>(element[1]) << 16;
    }
}

/* What a lane contributes: its halves of A (a[0], a[1], a[2], a[3] in pairs) and of B, widened. */
struct Fragments {
    float a[4][2], b[2][2];
};

void mma_m16n8k16(Site site, float (*from)(uint16_t), float (&c)[4], const uint32_t (&a)[4],
                  uint32_t b0, uint32_t b1)
{
    const auto half = [from](uint32_t pair, unsigned e) {
        return from(static_cast<uint16_t>(pair >> 16 * e));
    };
    Fragments mine;
    for (unsigned e = 0; e < 2; e++) {
        for (unsigned i = 0; i < 4; i++)
            mine.a[i][e] = half(a[i], e);
        mine.b[0][e] = half(b0, e);
        mine.b[1][e] = half(b1, e);
    }
    const Slot *const slots = exchange(site, &mine, sizeof mine);
    const auto lane_of = [slots](unsigned group, unsigned t) {
        return reinterpret_cast<const Fragments *>(slots[4 * group + t].bytes);
    };
    const unsigned row = lane() / 4, column = lane() % 4 * 2;
    for (unsigned k = 0; k < 16; k++) {
        const unsigned t = k % 8 / 2, e = k % 2, upper = k / 8;
        const Fragments *const rows = lane_of(row, t);
        const float b[2] = {lane_of(column, t)->b[upper][e], lane_of(column + 1, t)->b[upper][e]};
        for (unsigned j = 0; j < 2; j++) {
            c[j] += rows->a[2 * upper][e] * b[j];
            c[2 + j] += rows->a[2 * upper + 1][e] * b[j];
        }
    }
}

}

/* ------------------------------------------------------------------ half precision */

float aotc_from_half(aotc_half x)
{
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
    const uint32_t exponent = x.bits >> 10 & 31u, mantissa = x.bits & 0x3ffu;
    if (exponent == 0) /* zero or subnormal: so many times 2^-24 */
        return (sign ? -1.0f : 1.0f) * static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    return __int_as_float(static_cast<int>(sign | wide << 23 | mantissa << 13));
}

aotc_half aotc_to_half(float x)
{
    const uint32_t bits = static_cast<uint32_t>(__float_as_int(x));
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return {static_cast<uint16_t>(sign | 0x7e00u)}; /* NaN */
    if (magnitude >= 0x477ff000u)
        return {static_cast<uint16_t>(sign | 0x7c00u)}; /* 65520 and more: infinity */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 aligns the bits, and rounds */
        const float aligned = __int_as_float(static_cast<int>(magnitude)) + 0.5f;
        return {static_cast<uint16_t>(sign | (__float_as_int(aligned) - 0x3f000000))};
    }
    const uint32_t odd = magnitude >> 13 & 1u; /* to nearest, halves to even */
    return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}
