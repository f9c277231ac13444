// Serve two models from one program, each on its own thread over the same images.
//
//     serve images.f32
//
// images.f32 holds n x 64 little-endian floats.  Prints two lines: the digits of the wide network
// and those of the narrow one.  Every thread owns a session; sessions share their model's weights.

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "narrow.hpp"
#include "wide.hpp"

namespace {

std::vector<float> read_floats(const char *path)
{
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::vector<float> data(file ? static_cast<size_t>(file.tellg()) / sizeof(float) : 0);
    file.seekg(0);
    file.read(reinterpret_cast<char *>(data.data()),
              static_cast<std::streamsize>(data.size() * sizeof(float)));
    return data;
}

// Classify the images in batches; returns "" or what went wrong.
template <class Session>
std::string classify(Session &session, const std::vector<float> &images, int64_t batch,
                     std::vector<int64_t> &digits)
{
    std::vector<float> logits(static_cast<size_t>(batch) * 10);
    const int64_t count = static_cast<int64_t>(images.size() / 64);
    for (int64_t first = 0; first < count; first += batch) {
        const int64_t n = count - first < batch ? count - first : batch;
        const size_t rows = static_cast<size_t>(n);
        const aotc_status status = session.run(n, {images.data() + first * 64, rows * 64},
                                               {logits.data(), rows * 10},
                                               {digits.data() + first, rows});
        if (status != AOTC_OK) {
            return std::string(aotc_strerror(status)) + ": " + session.detail();
        }
    }
    return "";
}

void print(const std::vector<int64_t> &digits)
{
    for (const int64_t d : digits) {
        std::printf("%d", static_cast<int>(d));
    }
    std::printf("\n");
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: serve images.f32\n");
        return 2;
    }
    wide::model wide_model;
    narrow::model narrow_model;
    aotc_status status = wide_model.open(WIDE_WEIGHTS);
    if (status == AOTC_OK) {
        status = narrow_model.open(NARROW_WEIGHTS);
    }
    if (status != AOTC_OK) {
        std::fprintf(stderr, "weights: %s\n", aotc_strerror(status));
        return 1;
    }
    const std::vector<float> images = read_floats(argv[1]);
    std::vector<int64_t> from_wide(images.size() / 64), from_narrow(images.size() / 64);
    std::string wide_fault, narrow_fault;
    std::thread one([&] {
        wide::session session(wide_model);
        wide_fault = classify(session, images, 32, from_wide);
    });
    std::thread two([&] {
        narrow::session session(narrow_model);
        narrow_fault = classify(session, images, 7, from_narrow);
    });
    one.join();
    two.join();
    if (!wide_fault.empty() || !narrow_fault.empty()) {
        std::fprintf(stderr, "wide: %s; narrow: %s\n", wide_fault.c_str(), narrow_fault.c_str());
        return 1;
    }
    print(from_wide);
    print(from_narrow);
    return 0;
}
