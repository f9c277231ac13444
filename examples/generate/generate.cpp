// Sample text from the compiled decoder: a C++ program without Python or ONNX.
//
//     generate zen_weights.bin characters.txt COUNT TEMPERATURE PROMPT
//
// The caches of keys and values are buffers of this program's, with room for CAPACITY characters.
// Every call reads what is there and writes its own entries behind it; nothing is copied.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "zen.hpp"

namespace {

constexpr int64_t CAPACITY = 1024;

[[noreturn]] void fail(const std::string &why) {
    std::fprintf(stderr, "generate: %s\n", why.c_str());
    std::exit(1);
}

std::string read_text(const char *path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        fail(std::string("cannot read ") + path);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// Numbers from 0 up to 1, the same as generate.py's.
class Dice {
public:
    double roll() {
        state_ = state_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return static_cast<double>(state_ >> 11) / 9007199254740992.0;
    }

private:
    uint64_t state_ = 1;
};

// A character by the scores of all, more boldly at a higher temperature; at 0 the best one.
int64_t sample(const float *scores, size_t count, double temperature, Dice &dice) {
    const float *const best = std::max_element(scores, scores + count);
    const double most = *best;
    if (temperature <= 0) {
        return best - scores;
    }
    std::vector<double> sums;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += std::exp((static_cast<double>(scores[i]) - most) / temperature);
        sums.push_back(sum);
    }
    const double at = dice.roll() * sum;
    return std::min<int64_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin(),
                             static_cast<int64_t>(count) - 1);
}

// The decoder and what it remembers.
class Decoder {
public:
    explicit Decoder(const zen::model &model) : session_(model) {
        const aotc_tensor_info *const inputs = zen_inputs();
        for (int i = 1; i < ZEN_INPUTS; i++) { // [1, heads, capacity, size]
            const aotc_dim *const dims = inputs[i].dims;
            caches_.emplace_back(static_cast<size_t>(dims[1].size * CAPACITY * dims[3].size));
        }
        characters_ = static_cast<size_t>(zen_outputs()[0].dims[2].size);
    }

    // The scores of what follows `ids`, which follow all that was read before.
    const float *read(std::vector<int64_t> ids) {
        const auto seq = static_cast<int64_t>(ids.size());
        scores_.resize(ids.size() * characters_);
        const aotc_status status = session_.run(seq, past_, CAPACITY, ids, caches_[0],
                                                caches_[1], caches_[2], caches_[3], scores_);
        if (status != AOTC_OK) {
            fail(std::string(aotc_strerror(status)) + ": " + session_.detail());
        }
        past_ += seq;
        return scores_.data() + (ids.size() - 1) * characters_;
    }

    size_t characters() const { return characters_; }

private:
    zen::session session_;
    std::vector<std::vector<float>> caches_;
    std::vector<float> scores_;
    size_t characters_;
    int64_t past_ = 0;
};

} // namespace

int main(int argc, char **argv) {
    if (argc != 6) {
        fail("usage: generate zen_weights.bin characters.txt COUNT TEMPERATURE PROMPT");
    }
    const std::string characters = read_text(argv[2]), prompt = argv[5];
    zen::model model;
    if (const aotc_status status = model.open(argv[1]); status != AOTC_OK) {
        fail(std::string(argv[1]) + ": " + aotc_strerror(status));
    }
    std::vector<int64_t> ids;
    for (const char c : prompt) {
        const size_t at = characters.find(c);
        if (at == std::string::npos) {
            fail(std::string("the model never saw the character ") + c);
        }
        ids.push_back(static_cast<int64_t>(at));
    }
    Decoder decoder(model);
    if (ids.empty() || characters.size() != decoder.characters()) {
        fail("give a prompt, and the characters of this model");
    }
    Dice dice;
    const double temperature = std::atof(argv[4]);
    const int count = std::atoi(argv[3]);
    std::string text = prompt;
    const float *scores = decoder.read(ids); // the prompt in one call
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; i++) {
        const int64_t next = sample(scores, characters.size(), temperature, dice);
        text += characters[static_cast<size_t>(next)];
        scores = decoder.read({next}); // then one character at a time
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%s\n", text.c_str());
    std::fprintf(stderr, "%.0f tokens a second\n", count / std::max(took.count(), 1e-9));
    return 0;
}
