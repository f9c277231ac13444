/* aotc_cusim_shared.h: threads, sites and checked shared memory of the simulator.
 *
 * Every element of shared memory has a Cell that remembers its last write and its last read.  A
 * block's life is cut into intervals by its barriers, a warp's intervals by aotc_syncwarp: two
 * accesses are ordered if they lie in different intervals, and a race otherwise. */
#ifndef AOTC_CUSIM_SHARED_H
#define AOTC_CUSIM_SHARED_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "aotc_cusim_runtime.h"

namespace cusim {

struct Index3 {
    unsigned x, y, z;
};

/* Where a thread waits: the function's name, file and line. */
struct Site {
    const char *function;
    const char *file;
    int line;
};

/* What a simulated thread knows about itself. */
struct Thread {
    Index3 index;      /* threadIdx */
    uint16_t number;   /* linear index in the block */
    uint16_t interval; /* of its warp: aotc_syncwarp since the block's last barrier */
};

/* The block that runs. */
struct Block {
    Index3 index;      /* blockIdx */
    dim3 shape, grid;  /* blockDim, gridDim */
    uint32_t interval; /* counts the barriers of all blocks so far */
    uint32_t first;    /* its value when this block started */
};

extern Thread *current;
extern Block block;

inline unsigned lane()
{
    return current->number % 32u;
}

/* Report an error of the running kernel and abandon the launch. */
[[noreturn]] void fault(cudaError_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "thread (3,0,0)": the thread of the block with that linear number. */
std::string thread_name(unsigned number);

void require_global_alignment(const void *p, size_t bytes);

void block_barrier(Site site);
void warp_barrier(Site site);

/* Give a value (at most 64 bytes) to the warp and wait for it: the values of its 32 lanes. */
struct Slot {
    alignas(8) unsigned char bytes[64];
};
const Slot *exchange(Site site, const void *value, size_t bytes);

void commit_copies();
void wait_for_copies(int groups);

/* ------------------------------------------------------------------ who touched an element when */

/* Who: a thread's number, 0x8000 + number of a warp (several of its lanes) or SEVERAL. */
struct Stamp {
    uint32_t interval;
    uint16_t warp_interval;
    uint16_t who;
};

constexpr uint16_t SEVERAL = 0xffff;
constexpr uint32_t COPYING = 0xffffffff; /* interval of an element that a cp.async will write */

struct Cell {
    Stamp write, read;
};

/* The block's shared memory (static buffers lie behind the dynamic ones) and a Cell per byte, of
 * which the one at an element's first byte is used. */
extern unsigned char *smem;
extern Cell *cells;

/* Make the memory (once; false if there is none), and poison it for the next block, which may use
 * `most` bytes, static buffers included. */
bool reserve_smem();
void begin_smem(size_t threads, size_t dynamic_bytes, size_t most);

inline Cell &cell_of(const void *p)
{
    return cells[static_cast<const unsigned char *>(p) - smem];
}

inline Stamp now()
{
    return {block.interval, current->interval, current->number};
}

/* Errors unless an access is ordered after those the cell remembers; otherwise note it. */
void check_read(const void *p, size_t bytes);
void check_write(const void *p, size_t bytes, const void *value);

inline void note_read(const void *p, size_t bytes)
{
    Cell &cell = cell_of(p);
    const Stamp &w = cell.write, &r = cell.read;
    const bool ordered = w.interval - block.first < block.interval - block.first;
    const bool own = w.interval == block.interval && w.who == current->number;
    if ((ordered || own) && (r.interval != block.interval || r.who == current->number))
        cell.read = now();
    else
        check_read(p, bytes);
}

inline void note_write(const void *p, size_t bytes, const void *value)
{
    Cell &cell = cell_of(p);
    const Stamp &w = cell.write, &r = cell.read;
    if ((w.interval < block.interval || (w.interval == block.interval && w.who == current->number))
        && (r.interval != block.interval || r.who == current->number))
        cell.write = now();
    else
        check_write(p, bytes, value);
}

/* ------------------------------------------------------------------ pointers */

/* One element of a shared buffer: reads and writes are checked. */
template <class T>
class Element {
public:
    explicit Element(T *p) : p(p) {}
    Element(const Element &) = default;

    operator T() const
    {
        note_read(p, sizeof(T));
        return *p;
    }

    const Element &operator=(T value) const
    {
        note_write(p, sizeof(T), &value);
        *p = value;
        return *this;
    }

    const Element &operator=(const Element &other) const { return *this = static_cast<T>(other); }
    const Element &operator+=(T x) const { return *this = static_cast<T>(T(*this) + x); }
    const Element &operator-=(T x) const { return *this = static_cast<T>(T(*this) - x); }
    const Element &operator*=(T x) const { return *this = static_cast<T>(T(*this) * x); }
    const Element &operator/=(T x) const { return *this = static_cast<T>(T(*this) / x); }

private:
    T *p;
};

[[noreturn]] void outside(const void *p, const void *begin, const void *end, size_t size);
void copy_later(unsigned char *dst, const void *src, size_t bytes, size_t element, bool valid);

/* A pointer into a shared buffer that knows the buffer's bounds. */
template <class T>
class shared {
public:
    using Value = typename std::remove_const<T>::type;

    shared(T *p, T *begin, T *end) : p(p), begin(begin), end(end) {}

    /* shared<T> is also a shared<const T>. */
    template <class U, class = typename std::enable_if<std::is_same<const U, T>::value>::type>
    shared(const shared<U> &other) : p(other.p), begin(other.begin), end(other.end)
    {
    }

    /* A value to read, or an Element to read and write. */
    auto operator[](std::ptrdiff_t i) const
    {
        T *const at = p + i;
        if (at < begin || at >= end)
            outside(at, begin, end, sizeof(T));
        if constexpr (std::is_const<T>::value) {
            note_read(at, sizeof(T));
            return static_cast<Value>(*at);
        } else {
            return Element<T>(at);
        }
    }

    auto operator*() const { return (*this)[0]; }
    shared operator+(std::ptrdiff_t n) const { return {p + n, begin, end}; }
    shared operator-(std::ptrdiff_t n) const { return {p - n, begin, end}; }
    shared &operator+=(std::ptrdiff_t n)
    {
        p += n;
        return *this;
    }

    template <class U>
    shared<U> slice(size_t byte_offset, size_t count) const
    {
        U *const from = reinterpret_cast<U *>(
            reinterpret_cast<unsigned char *>(const_cast<Value *>(p)) + byte_offset);
        if (static_cast<const void *>(from) < static_cast<const void *>(begin)
            || static_cast<const void *>(from + count) > static_cast<const void *>(end))
            outside(from + count, begin, end, sizeof(T));
        return {from, from, from + count};
    }

    /* Stop a misaligned access of so many bytes. */
    void require_alignment(size_t bytes) const
    {
        if (reinterpret_cast<uintptr_t>(p) % bytes != 0)
            fault(cudaErrorMisalignedAddress,
                  "a shared access of %zu bytes is not aligned to them", bytes);
    }

    void copy_later(const void *src, size_t bytes, bool valid) const
    {
        require_alignment(bytes);
        const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(bytes / sizeof(T));
        if (p < begin || p + count > end)
            outside(p + count - 1, begin, end, sizeof(T));
        cusim::copy_later(reinterpret_cast<unsigned char *>(p), src, bytes, sizeof(T), valid);
    }

    /* The first of count elements to read in one go: checked and noted, at a plain address. */
    const Value *read(std::ptrdiff_t count) const
    {
        for (std::ptrdiff_t i = 0; i < count; i++) {
            if (p + i < begin || p + i >= end)
                outside(p + i, begin, end, sizeof(T));
            note_read(p + i, sizeof(T));
        }
        return p;
    }

private:
    template <class U>
    friend class shared;
    T *p, *begin, *end;
};

unsigned char *dynamic_end();
unsigned char *find_static_smem(const char *site, size_t bytes);

/* The dynamic shared memory of the launch as elements of T. */
template <class T>
shared<T> dynamic_smem()
{
    T *const from = reinterpret_cast<T *>(smem);
    return {from, from, from + static_cast<size_t>(dynamic_end() - smem) / sizeof(T)};
}

/* The static buffer of a declaration, the same for all threads of the block. */
template <class T>
shared<T> static_smem(const char *site, size_t count)
{
    T *const from = reinterpret_cast<T *>(find_static_smem(site, count * sizeof(T)));
    return {from, from, from + count};
}

}

#endif
