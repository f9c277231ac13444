/* ngrams: how often each n-gram occurs in a row of tokens, its tokens 1 to `gaps` + 1 places apart.
 * `nodes` is a tree of them, four words a node: the token, where its children begin, how many they
 * are, and the number of the n-gram that ends there or -1; the first `roots` nodes begin n-grams,
 * children are in ascending order of their tokens.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x) and AOTC_ELEMENT. */

/* The node of a token among `count` of them from `at` on, or -1. */
static int64_t aotc_node(const int64_t *nodes, int64_t at, int64_t count, AOTC_ELEMENT token)
{
    const int64_t end = at + count;
    while (count > 0) {
        const int64_t half = count / 2;
        const bool behind = nodes[4 * (at + half)] < token;
        at += behind ? half + 1 : 0;
        count = behind ? count - half - 1 : half;
    }
    return at < end && nodes[4 * at] == token ? at : -1;
}

void AOTC_LIBRARY(ngrams)(const AOTC_ELEMENT *tokens, const int64_t *nodes, int64_t *counts,
                          int64_t n, int64_t kinds, int64_t roots, int64_t gaps)
{
    for (int64_t k = 0; k < kinds; k++)
        counts[k] = 0;
    for (int64_t step = 1; step - 1 <= gaps && (step == 1 || step < n); step++)
        for (int64_t first = 0; first < n; first++) {
            int64_t begin = 0, count = roots;
            for (int64_t at = first; at < n && count > 0; at += step) {
                const int64_t node = aotc_node(nodes, begin, count, tokens[at]);
                if (node < 0)
                    break;
                /* of one token alone there are no gaps */
                if (nodes[4 * node + 3] >= 0 && (step == 1 || at > first))
                    counts[nodes[4 * node + 3]]++;
                begin = nodes[4 * node + 1];
                count = nodes[4 * node + 2];
            }
        }
}
