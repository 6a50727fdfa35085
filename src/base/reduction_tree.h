// SPDX-License-Identifier: Apache-2.0
/* The tree that fixes the order of every sum that a mesh axis can split: the binary one below, or
 * the one that adds from left to right (numerics.reduce_tree), for which tsr_tree_of_* exist.
 *
 * Units 0..n-1 are pushed in order onto a stack; after unit i, the two topmost entries are merged
 * `tsr_tree_merges(n, i)` times (lower + upper). For n = odd * 2^k the tree halves n while it is
 * even and adds the odd rest as a binary counter does, so that a rank that owns an aligned block of
 * units computes exactly a subtree, and ranks continue with `tsr_tree_merges(ranks, rank)`.
 *
 * A caller keeps the entries in an array, and tsr_tree_stack tells it which ones to add:
 *
 *   tsr_tree_stack tree = {0};
 *   for (int64_t i = 0; i < n; i++) {
 *     sums[tsr_tree_push(&tree, tsr_tree_merges(n, i))] = units[i];
 *     for (int low; tsr_tree_merge(&tree, &low);) sums[low] += sums[low + 1];
 *   }
 *
 * Then sums[0] is the sum. */
#ifndef TSR_BASE_REDUCTION_TREE_H
#define TSR_BASE_REDUCTION_TREE_H
#include <stdbool.h>
#include <stdint.h>

/* In CUDA C for the device, too. */
#ifdef __CUDACC__
#define TSR_TREE_FUNCTION static inline __host__ __device__
#else
#define TSR_TREE_FUNCTION static inline
#endif

TSR_TREE_FUNCTION int64_t tsr_tree_odd(int64_t n) {
  while (n > 1 && n % 2 == 0) n /= 2;
  return n;
}

TSR_TREE_FUNCTION int tsr_tree_merges(int64_t n, int64_t i) {
  int64_t odd = tsr_tree_odd(n), in_run = i % odd;
  int merges = 0;
  for (int64_t m = in_run + 1; m % 2 == 0; m /= 2) merges++; /* the counter inside a run */
  if (in_run == odd - 1) {
    int left = 0; /* entries of this run still on the stack: the ones of `odd` in binary */
    for (int64_t m = odd; m; m /= 2) left += (int)(m & 1);
    merges += left - 1;
    for (int64_t m = i / odd + 1; m % 2 == 0; m /= 2) merges++; /* the counter over runs */
  }
  return merges;
}

/* Stack entries before unit i is pushed: a run of `odd` is one, runs are a binary counter, and so
 * is what there is of the next run. */
TSR_TREE_FUNCTION int tsr_tree_entries(int64_t n, int64_t i) {
  int64_t odd = tsr_tree_odd(n);
  return __builtin_popcountll((uint64_t)(i / odd)) + __builtin_popcountll((uint64_t)(i % odd));
}

/* Stack entries needed at most: the digits of n in binary, for both counters may be all ones. */
TSR_TREE_FUNCTION int tsr_tree_depth(int64_t n) {
  return n > 0 ? 64 - __builtin_clzll((uint64_t)n) : 0;
}

enum { TSR_TREE_DEPTH_MAX = 64 }; /* of any number of units, in nested trees too */

typedef struct {
  int entries; /* before unit i: tsr_tree_entries(n, i) */
  int merges;  /* of the last unit, still to be done */
} tsr_tree_stack;

/* Gives the index of the new entry. All merges of the unit before must be done. */
TSR_TREE_FUNCTION int tsr_tree_push(tsr_tree_stack *s, int merges) {
  s->merges = merges;
  return s->entries++;
}

/* The next merge: entry `*ret_low` becomes the sum of itself and the entry after it, which is then
 * free. False when there is none. */
TSR_TREE_FUNCTION bool tsr_tree_merge(tsr_tree_stack *s, int *ret_low) {
  if (s->merges == 0) return false;
  s->merges--;
  *ret_low = --s->entries - 1;
  return true;
}

/* Whether a block of `local` units is a subtree of n units wherever it is aligned. */
TSR_TREE_FUNCTION bool tsr_tree_is_subtree(int64_t n, int64_t local) {
  return local > 0 && n % local == 0 && (local == 1 || local == n || local % tsr_tree_odd(n) == 0);
}

/* ---- of either shape ---- */

/* Flat: ((u0 + u1) + u2) + …; its subtrees are single units, and all of them. */
typedef enum { TSR_TREE_BINARY, TSR_TREE_FLAT } tsr_tree_shape;

TSR_TREE_FUNCTION int tsr_tree_of_merges(tsr_tree_shape shape, int64_t n, int64_t i) {
  return shape == TSR_TREE_FLAT ? i > 0 : tsr_tree_merges(n, i);
}
TSR_TREE_FUNCTION int tsr_tree_of_entries(tsr_tree_shape shape, int64_t n, int64_t i) {
  return shape == TSR_TREE_FLAT ? i > 0 : tsr_tree_entries(n, i);
}
TSR_TREE_FUNCTION int tsr_tree_of_depth(tsr_tree_shape shape, int64_t n) {
  return shape == TSR_TREE_FLAT ? (n > 1) + (n > 0) : tsr_tree_depth(n);
}
/* Of them those that are stored where a unit that is merged at once is not: its place is the
 * topmost one when the stack is fullest. */
TSR_TREE_FUNCTION int tsr_tree_of_stored(tsr_tree_shape shape, int64_t n) {
  int depth = tsr_tree_of_depth(shape, n);
  return depth > 1 ? depth - 1 : depth;
}
TSR_TREE_FUNCTION bool tsr_tree_of_is_subtree(tsr_tree_shape shape, int64_t n, int64_t local) {
  bool apart = local == 1 || local == n;
  return tsr_tree_is_subtree(n, local) && (shape == TSR_TREE_BINARY || apart);
}

/* The tree whose leaves are trees: of `n` units, each run of `inner` is one of the n / inner
 * leaves. */
TSR_TREE_FUNCTION int
tsr_tree_nested_merges(tsr_tree_shape shape, int64_t n, int64_t inner, int64_t i) {
  int merges = tsr_tree_of_merges(shape, inner, i % inner);
  if (i % inner < inner - 1) return merges;
  return merges + tsr_tree_of_merges(shape, n / inner, i / inner);
}
TSR_TREE_FUNCTION int tsr_tree_nested_depth(tsr_tree_shape shape, int64_t n, int64_t inner) {
  return tsr_tree_of_depth(shape, n / inner) - 1 + tsr_tree_of_depth(shape, inner);
}

#endif
