// SPDX-License-Identifier: Apache-2.0
/* How far two computations of a tensor may be apart that round in other places.
 *
 * Every task rounds its results once, to the type that they are stored in, and the sum of K numbers
 * in f32 has an error of sqrt(K) unit roundoffs (the probabilistic analysis of Higham and Mary
 * 2019). Errors of different roundings are independent: their squares add up. So a tensor has four
 * mean squares of what its elements may be apart, which compare/error_paths.h finds:
 *
 *   roundings   of the results on the way to it, if each had a unit roundoff of 1
 *   stored      the same, with that of the type that each is stored in here
 *   sums        of additions in f32, if these had a unit roundoff of 1
 *   choices     of what depends on the experts that tokens have chosen
 *
 * The bound is the root of their sum, of the last one twice the share of the tokens that have
 * chosen other experts (what they would have had, and what they have), and 1.5 (1 + 3 / sqrt(n))
 * times that: errors are not all independent, and the mean of n squares varies. An element alone
 * may be eight times as far. What is beyond is another function of the inputs. */
#ifndef TSR_COMPARE_ERROR_BOUND_H
#define TSR_COMPARE_ERROR_BOUND_H
#include <stdint.h>

typedef struct {
  double roundings, stored, sums, choices;
} tsr_error_path;

/* The unit roundoff of a type, of safetensors' name ("F32", "BF16", "F16", "F8_E4M3", "F8_E5M2");
 * of others 0. */
double tsr_unit_roundoff(const char *dtype);

/* Of the root mean square of the differences of a tensor with `elements`. roundoff: of a type that
 * another computation may have rounded all results to; other_choices: the share of the tokens whose
 * experts differ. */
double
tsr_error_bound(tsr_error_path path, double roundoff, double other_choices, int64_t elements);

enum { TSR_ELEMENT_BOUNDS = 8 }; /* of an element alone, where the tensor's elements are alike */

#endif
