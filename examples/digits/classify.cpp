// Classify digit images with the compiled bundle: a C++ program without Python or ONNX.
//
//     classify digits_weights.bin images.f32
//
// images.f32 holds n x 64 little-endian floats; one digit per line is printed.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "digits.h"

namespace {

void must(aotc_status status, const char *what) {
    if (status != AOTC_OK) {
        std::fprintf(stderr, "%s: %s\n", what, aotc_strerror(status));
        std::exit(1);
    }
}

std::vector<float> read_floats(const char *path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path);
        std::exit(1);
    }
    std::vector<float> data(static_cast<size_t>(file.tellg()) / sizeof(float));
    file.seekg(0);
    file.read(reinterpret_cast<char *>(data.data()),
              static_cast<std::streamsize>(data.size() * sizeof(float)));
    return data;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s digits_weights.bin images.f32\n", argv[0]);
        return 2;
    }
    const std::vector<float> images = read_floats(argv[2]);
    const int64_t batch = static_cast<int64_t>(images.size() / 64);

    // The weights are mapped once and may be shared by many contexts.
    digits_weights weights;
    must(digits_weights_open(&weights, argv[1]), "weights");

    // The arena is the caller's: any 64-byte aligned memory, here from the heap.
    const size_t bytes = digits_arena_size(batch, 1);
    void *arena = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    digits_context context;
    must(digits_init(&context, &weights, arena, bytes, nullptr), "init");

    std::vector<float> logits(static_cast<size_t>(batch) * 10);
    std::vector<int64_t> digit(static_cast<size_t>(batch));
    must(digits_run(&context, batch, images.data(), logits.data(), digit.data()), "run");
    for (int64_t d : digit) {
        std::printf("%lld\n", static_cast<long long>(d));
    }
    std::free(arena);
    digits_weights_close(&weights);
    return 0;
}
