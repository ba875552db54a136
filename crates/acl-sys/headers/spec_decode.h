/*
 * C interface of the ATB shim, the spec-decode module: verification of drafts as one operation. A shim has it when it was
 * built by `cargo xtask build-atb --with-spec-decode`; its rules are those of spec_atb.h. It is made, set up, executed and
 * destroyed as any operation of ATB's.
 *
 * T rows of logits over a vocabulary of V tokens become a verdict of a few bytes each. Rows are judged one by one, so that
 * those of several sequences may follow each other. All tensors are ND. Logits are f16, bf16 or f32; a 310P has no bf16,
 * and sorts no f32.
 *
 * The greedy rule gives the two likeliest tokens of each row. Input: logits [T, V], V 2 or more. Outputs: tokens i32
 * [T, 2], likeliest first; their logits [T, 2] and their probabilities at temperature 1 [T, 2], both in the type of the
 * logits. Which of equal logits comes first is not defined: when the two are equal, the row itself has to say. A row with
 * NaN or plus infinity anywhere has probabilities that are NaN.
 *
 * The rejection rule says whether a drafted token stands, with probability min(1, p / q). Inputs: logits [T, V]; the token
 * drafted after each row i32 [T], 0 to V - 1, which is not checked; u * q f32 [T], u a uniform number and q the drafter's
 * probability of the token. Outputs: whether u * q < p, i8 [T]; p f32 [T]. Where nothing was drafted, u * q above 1
 * refuses.
 */
#ifndef SPEC_DECODE_H
#define SPEC_DECODE_H

#include "spec_atb.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What is asked of each row. */
typedef enum spec_atb_verify_rule {
    /** The two likeliest tokens. */
    SPEC_ATB_VERIFY_GREEDY = 1,
    /** Whether u < p / q of a drafted token. */
    SPEC_ATB_VERIFY_REJECTION = 2
} spec_atb_verify_rule;

/** Verification of drafts. */
typedef struct spec_atb_verify_param {
    spec_atb_verify_rule rule;
    /** Of rejection: 1 / temperature, above 0 and finite. Of the greedy rule, which has no temperature: 1. */
    float inverse_temperature;
} spec_atb_verify_param;

/** Makes a Verify operation. Needs ATB 8.1. */
spec_atb_status spec_atb_create_verify(const spec_atb_verify_param *param, spec_atb_operation **operation);

#ifdef __cplusplus
}
#endif

#endif
