// Runs the kernel on the host and compares it with plain loops in double precision. Ends with 0 when all agree.
#include "../verify.cpp"

namespace {

int failures = 0;

void expect(bool holds, const char *what, int32_t vocabulary, int32_t row)
{
    if (!holds && ++failures <= 20) {
        std::fprintf(stderr, "%s: vocabulary %d, row %d\n", what, vocabulary, row);
    }
}

struct Random {
    uint64_t state;
    double next()
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<double>(state >> 33) / 2147483648.0;
    }
};

template <typename Kernel> void launch(int64_t blocks, Kernel kernel)
{
    for (int64_t block = 0; block < blocks; ++block) {
        AscendC::stand_in_core() = AscendC::StandInCore();
        AscendC::stand_in_core().block = block;
        AscendC::stand_in_core().blocks = blocks;
        kernel();
    }
}

template <typename Element> uint8_t *address(std::vector<Element> &values)
{
    return reinterpret_cast<uint8_t *>(values.data());
}

/// Probability of a logit in a row, at a temperature.
template <typename Logit> double probability(const Logit *row, int32_t count, double logit, double factor)
{
    double greatest = -INFINITY, total = 0;
    for (int32_t at = 0; at < count; ++at) {
        greatest = std::fmax(greatest, static_cast<double>(static_cast<float>(row[at])) * factor);
    }
    for (int32_t at = 0; at < count; ++at) {
        total += std::exp(static_cast<double>(static_cast<float>(row[at])) * factor - greatest);
    }
    return std::exp(logit * factor - greatest) / total;
}

constexpr int32_t ROWS = 6;

/// Row 0 as it comes, 1 with its greatest twice, 2 masked over its first tile, 3 with NaN, 4 with infinity, 5 far below 0.
template <typename Logit> std::vector<Logit> make(int32_t vocabulary, Random &random)
{
    std::vector<Logit> logits(static_cast<size_t>(vocabulary) * ROWS);
    for (size_t at = 0; at < logits.size(); ++at) {
        const bool low = at / static_cast<size_t>(vocabulary) == 5;
        logits[at] = static_cast<Logit>(static_cast<float>(random.next() * 20.0 - (low ? 500.0 : 10.0)));
    }
    auto at = [&](int32_t row, int32_t token) -> Logit & { return logits[static_cast<size_t>(row) * vocabulary + token]; };
    at(0, static_cast<int32_t>(random.next() * vocabulary)) = static_cast<Logit>(12.0f);
    at(1, static_cast<int32_t>(random.next() * (vocabulary / 2))) = static_cast<Logit>(12.0f);
    at(1, vocabulary - 1) = static_cast<Logit>(12.0f);
    for (int32_t token = 0; token < TILE && token + 2 < vocabulary; ++token) {
        at(2, token) = static_cast<Logit>(NO_LOGIT);
    }
    at(3, vocabulary / 2) = static_cast<Logit>(NAN);
    at(4, vocabulary / 3) = static_cast<Logit>(INFINITY);
    return logits;
}

template <typename Logit, typename Kernel> void greedy(Kernel kernel, int32_t vocabulary, double tolerance)
{
    Random random{static_cast<uint64_t>(vocabulary)};
    std::vector<Logit> logits = make<Logit>(vocabulary, random);
    std::vector<int32_t> tokens(2 * ROWS, -1);
    std::vector<Logit> values(2 * ROWS), shares(2 * ROWS);
    launch(4, [&] { kernel(address(logits), address(tokens), address(values), address(shares), ROWS, vocabulary); });
    for (int32_t row = 0; row < ROWS; ++row) {
        const Logit *of = logits.data() + static_cast<size_t>(row) * vocabulary;
        const float share = static_cast<float>(shares[2 * row]);
        if (row == 3 || row == 4) {
            expect(std::isnan(share), "a row without a law has a probability", vocabulary, row);
            continue;
        }
        int32_t first = 0, second = -1;
        for (int32_t at = 1; at < vocabulary; ++at) {
            if (static_cast<float>(of[at]) > static_cast<float>(of[first])) {
                second = first;
                first = at;
            } else if (second < 0 || static_cast<float>(of[at]) > static_cast<float>(of[second])) {
                second = at;
            }
        }
        expect(tokens[2 * row] == first, "not the likeliest token", vocabulary, row);
        expect(static_cast<float>(values[2 * row]) == static_cast<float>(of[first]), "not its logit", vocabulary, row);
        expect(static_cast<float>(values[2 * row + 1]) == static_cast<float>(of[second]), "not the second logit", vocabulary,
               row);
        expect(row != 1 || static_cast<float>(values[2]) == static_cast<float>(values[3]), "a tie is not seen", vocabulary, row);
        const double expected = probability(of, vocabulary, static_cast<float>(of[first]), 1.0);
        expect(std::fabs(share - expected) <= tolerance * expected, "not its probability", vocabulary, row);
    }
}

template <typename Logit, typename Kernel> void rejection(Kernel kernel, int32_t vocabulary, float factor)
{
    Random random{static_cast<uint64_t>(vocabulary) + 7};
    std::vector<Logit> logits = make<Logit>(vocabulary, random);
    std::vector<int32_t> drafted(ROWS);
    std::vector<float> thresholds(ROWS), probabilities(ROWS, -1.0f);
    std::vector<int8_t> accepted(ROWS, -1);
    for (int32_t row = 0; row < ROWS; ++row) {
        drafted[row] = row == 2 ? vocabulary - 1 : static_cast<int32_t>(random.next() * vocabulary);
        const Logit *of = logits.data() + static_cast<size_t>(row) * vocabulary;
        const double p = probability(of, vocabulary, static_cast<float>(of[drafted[row]]), factor);
        // Above and below the probability, by more than it is off.
        thresholds[row] = static_cast<float>(row % 2 == 0 ? p * 0.9999 : p * 1.0001);
    }
    launch(4, [&] {
        kernel(address(logits), address(drafted), address(thresholds), address(accepted), address(probabilities), ROWS,
               vocabulary, factor);
    });
    for (int32_t row = 0; row < ROWS; ++row) {
        const Logit *of = logits.data() + static_cast<size_t>(row) * vocabulary;
        const double expected = probability(of, vocabulary, static_cast<float>(of[drafted[row]]), factor);
        if (row == 3 || row == 4) {
            expect(std::isnan(probabilities[row]) && accepted[row] == 0, "a row without a law accepts", vocabulary, row);
            continue;
        }
        const double off = std::fabs(probabilities[row] - expected);
        // Logits over the temperature are up to 1000 here, and are rounded to f32.
        expect(off <= 8e-5 * expected + 1e-37, "not the probability of the draft", vocabulary, row);
        expect(accepted[row] == (row % 2 == 0 && expected > 1e-30 ? 1 : accepted[row]), "a likely draft is refused",
               vocabulary, row);
        expect(row % 2 == 0 || accepted[row] == 0, "an unlikely draft is accepted", vocabulary, row);
    }
}

} // namespace

int main()
{
    const int32_t vocabularies[] = {2, 3, 31, 64, 1000, TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1, 49152};
    for (const int32_t vocabulary : vocabularies) {
        greedy<half>(verify_greedy_f16, vocabulary, 2e-3);
        greedy<float>(verify_greedy_f32, vocabulary, 1e-5);
        for (const float factor : {1.0f, 0.5f, 2.0f}) {
            rejection<half>(verify_rejection_f16, vocabulary, factor);
            rejection<float>(verify_rejection_f32, vocabulary, factor);
        }
    }
    if (failures == 0) {
        std::printf("the kernel agrees on %zu vocabularies\n", sizeof vocabularies / sizeof *vocabularies);
    }
    return failures == 0 ? 0 : 1;
}
