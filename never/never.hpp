/* never.hpp: spans and resource ownership over never.h, for C++17.
 *
 *     never::model m;
 *     if (m.open("never_weights.bin") != AOTC_OK) ...
 *     never::session s(m); // one per thread; owns its arena
 *     if (s.run(x_bytes, x, i, y, r) != AOTC_OK) ... s.detail()
 *
 * Every fault is a status, a span of the wrong length too; only allocating an arena may throw. */
#ifndef NEVER_HPP
#define NEVER_HPP

#include "never.h"

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace never {

/* Elements that lie one after another: made from arrays, std::vector, std::array, std::span, or a
 * pointer and a count.  It owns nothing. */
template <class T> class span {
public:
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}
    template <class C, class P = decltype(std::declval<C &>().data()),
              class = std::enable_if_t<std::is_convertible<P, T *>::value>>
    constexpr span(C &&container) noexcept : data_(container.data()), size_(container.size())
    {
    }
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    T *data_;
    std::size_t size_;
};

/* The weights, opened once and shared by all sessions. */
class model {
public:
    model() noexcept = default;
    model(const model &) = delete;
    model &operator=(const model &) = delete;
    ~model() { never_weights_close(&weights_); }

    [[nodiscard]] aotc_status open(const char *path) noexcept
    {
        never_weights_close(&weights_);
        return never_weights_open(&weights_, path);
    }
    /* The image linked into the library. */
    [[nodiscard]] aotc_status open() noexcept
    {
        never_weights_close(&weights_);
        return never_weights_embedded(&weights_);
    }
    /* An image in memory, aligned to 64 bytes, that outlives the model. */
    [[nodiscard]] aotc_status open(const void *image, std::size_t bytes) noexcept
    {
        never_weights_close(&weights_);
        return never_weights_from_memory(&weights_, image, bytes);
    }
    const never_weights *get() const noexcept { return &weights_; }
    static const aotc_model_info &info() noexcept { return *never_info(); }

private:
    never_weights weights_{};
};

/* The built-in threads. */
class pool {
public:
    explicit pool(int threads) noexcept : status_(never_pool_create(&pool_, threads)) {}
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;
    ~pool() { never_pool_destroy(&pool_); }
    aotc_status status() const noexcept { return status_; }
    const aotc_pool *get() const noexcept { return status_ == AOTC_OK ? &pool_ : nullptr; }

private:
    aotc_pool pool_{};
    aotc_status status_;
};

/* One caller's state.  The arena grows to what a call needs; runs with the same dimensions
 * allocate nothing.  The model and the pool must outlive it. */
class session {
public:
    explicit session(const model &m, const aotc_pool *pool = nullptr) noexcept
        : weights_(m.get()), pool_(pool)
    {
    }

    /* Every span must hold exactly the elements of its tensor. */
    [[nodiscard]] aotc_status run(
        int64_t x_bytes,
        span<const uint8_t> x,
        span<const int64_t> i,
        span<uint8_t> y,
        span<uint8_t> r)
    {
        const int64_t syms[] = {x_bytes};
        if (!fits(never_inputs()[0], never_input_shape, 0, syms,
                  x.size())) {
            return wrong(never_inputs()[0].name);
        }
        if (!fits(never_inputs()[1], never_input_shape, 1, syms,
                  i.size())) {
            return wrong(never_inputs()[1].name);
        }
        if (!fits(never_outputs()[0], never_output_shape, 0, syms,
                  y.size())) {
            return wrong(never_outputs()[0].name);
        }
        if (!fits(never_outputs()[1], never_output_shape, 1, syms,
                  r.size())) {
            return wrong(never_outputs()[1].name);
        }
        const aotc_status status = reserve(syms);
        if (status != AOTC_OK) {
            return status;
        }
        return never_run(&context_, x_bytes, x.data(), i.data(), y.data(), r.data());
    }

    /* Why the last run failed; "" if it did not. */
    const char *detail() const noexcept
    {
        return *wrong_ != 0 ? wrong_ : never_detail(&context_);
    }

private:
    struct release {
        void operator()(unsigned char *p) const noexcept
        {
            ::operator delete(p, std::align_val_t(AOTC_ALIGNMENT));
        }
    };

    template <class Shape>
    static bool fits(const aotc_tensor_info &info, Shape shape_of, int index, const int64_t *syms,
                     std::size_t size) noexcept
    {
        int64_t extents[4] = {};
        std::size_t want = 1;
        if (shape_of(index, syms, extents) != AOTC_OK) {
            return true; /* run says which dimension is out of range */
        }
        for (int32_t i = 0; i < info.rank; i++) {
            want *= static_cast<std::size_t>(extents[i]);
        }
        return want == size;
    }

    aotc_status wrong(const char *name) noexcept
    {
        wrong_ = name;
        return AOTC_BAD_SHAPE;
    }

    aotc_status reserve(const int64_t *syms)
    {
        const int workers = pool_ == nullptr ? 1 : pool_->workers;
        const std::size_t need = never_arena_size_of(syms, workers);
        wrong_ = "";
        if (arena_ != nullptr && need <= bytes_) {
            return AOTC_OK;
        }
        const std::size_t bytes = need > AOTC_ALIGNMENT ? need : AOTC_ALIGNMENT;
        arena_.reset(); /* the next call starts here again if there is no memory for this one */
        bytes_ = 0;
        arena_.reset(static_cast<unsigned char *>(
            ::operator new(bytes, std::align_val_t(AOTC_ALIGNMENT))));
        bytes_ = bytes;
        return never_init(&context_, weights_, arena_.get(), bytes_, pool_);
    }

    const never_weights *weights_;
    const aotc_pool *pool_;
    never_context context_{};
    std::unique_ptr<unsigned char, release> arena_;
    std::size_t bytes_ = 0;
    const char *wrong_ = "";
};

} // namespace never

#endif
