/* Sampling: greedy ties, filters, seeds, and the distribution itself. */
#include <criterion/criterion.h>
#include <math.h>

#include "as_random.h"
#include "engine/sampler.h"

#define VOCABULARY 12

static struct as_sampler *sampler;

static void make(void)
{
    cr_assert_eq(as_sampler_create(VOCABULARY, &sampler, NULL), 0);
}

static void unmake(void)
{
    as_sampler_free(sampler);
}

TestSuite(engine_sampler, .init = make, .fini = unmake);

static const float logits[VOCABULARY] = {0, 1, 2, 3, 3, 2, 1, 0, -1, -2, -3, -4};

Test(engine_sampler, greedy_takes_the_lowest_of_equals)
{
    const struct as_sampling greedy = {.temperature = 0, .top_p = 1};
    cr_assert_eq(as_sample(sampler, logits, &greedy, 0), 3);
    cr_assert_eq(as_sample(sampler, logits, NULL, 0), 3);
}

/* Pearson's chi-squared over 12 cells; 31.26 is its 99.9 % point with 11 degrees of freedom
 * (scipy.stats.chi2.ppf(0.999, 11)). The seed is fixed, so the outcome is too. */
Test(engine_sampler, draws_follow_the_softmax)
{
    enum { DRAWS = 60000 };
    const struct as_sampling sampling = {.seed = 11, .temperature = 0.8, .top_p = 1};
    int count[VOCABULARY] = {0};
    double weight[VOCABULARY], total = 0, chi = 0;
    for (int i = 0; i < VOCABULARY; i++)
        total += weight[i] = exp(logits[i] / 0.8);
    for (uint64_t draw = 0; draw < DRAWS; draw++)
        count[as_sample(sampler, logits, &sampling, draw)]++;
    for (int i = 0; i < VOCABULARY; i++) {
        double expected = DRAWS * weight[i] / total;
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    cr_assert_lt(chi, 31.26, "chi-squared %g", chi);
}

Test(engine_sampler, top_k_and_top_p_cut_the_tail)
{
    const struct as_sampling top_two = {.seed = 1, .temperature = 5, .top_k = 2, .top_p = 1};
    const struct as_sampling nucleus = {.seed = 2, .temperature = 1, .top_p = 0.5};
    bool seen[VOCABULARY] = {false};
    for (uint64_t draw = 0; draw < 500; draw++) {
        int32_t id = as_sample(sampler, logits, &top_two, draw);
        cr_assert(id == 3 || id == 4);
        seen[id] = true;
        /* 3 and 4 hold 2 e^3 of about 60.8: the first alone is 33 %, both together 66 %. */
        id = as_sample(sampler, logits, &nucleus, draw);
        cr_assert(id == 3 || id == 4);
    }
    cr_assert(seen[3] && seen[4]);
}

Test(engine_sampler, a_seed_gives_the_same_tokens_again)
{
    const struct as_sampling one = {.seed = 5, .temperature = 1, .top_p = 1};
    const struct as_sampling other = {.seed = 6, .temperature = 1, .top_p = 1};
    int differ = 0;
    for (uint64_t draw = 0; draw < 100; draw++) {
        int32_t id = as_sample(sampler, logits, &one, draw);
        cr_assert_eq(id, as_sample(sampler, logits, &one, draw));
        differ += id != as_sample(sampler, logits, &other, draw);
    }
    cr_assert_gt(differ, 20);
}
