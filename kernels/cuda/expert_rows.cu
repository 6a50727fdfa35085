// SPDX-License-Identifier: Apache-2.0
/* The rows of a mixture of experts: the permutation of tokens into rows, the combination of rows
 * into tokens, and its gradient. The bits are those of the CPU's kernels. */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/copy_walk.h"
#include "kernels/cuda/expert_shape.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduction_tree.cuh"

/* ---- rows of tokens ---- */

/* A row is `elements` of E, which threads take in the order in which they lie. */
template <typename E>
static __global__ void
permute_rows(E *rows, const E *x, const int32_t *plan, int64_t R, int64_t k, int64_t elements) {
  for (int64_t i = map_thread(); i < R * elements; i += map_threads()) {
    int64_t row = i / elements, slot = plan[2 * row];
    E zero = {};
    rows[i] = slot >= 0 ? x[slot / k * elements + i % elements] : zero;
  }
}

template <typename E>
static void permute(
    tsr_cuda_stream s, void *rows, const void *x, const int32_t *plan, int64_t R, int64_t k,
    int64_t bytes) {
  int64_t elements = bytes / (int64_t)sizeof(E);
  if (R * elements > 0)
    TSR_LAUNCH(
        permute_rows<E>, launch_map(R * elements), s, (E *)rows, (const E *)x, plan, R, k,
        elements);
}

extern "C" void tsr_cuda_permute_rows(
    tsr_cuda_stream s, void *rows, const void *x, const int32_t *plan, int64_t R, int64_t k,
    int64_t bytes) {
  switch (copy_row_element(rows, x, bytes)) {
  case 16:
    permute<uint4>(s, rows, x, plan, R, k, bytes);
    break;
  case 8:
    permute<uint2>(s, rows, x, plan, R, k, bytes);
    break;
  case 4:
    permute<uint32_t>(s, rows, x, plan, R, k, bytes);
    break;
  default:
    permute<uint16_t>(s, rows, x, plan, R, k, bytes);
  }
}

/* ---- biases ---- */

/* A block a row; a thread reads its elements before it writes them. */
template <typename T>
static __global__ void expert_add(
    T *out, const T *rows, const T *bias, const int32_t *plan, int64_t first, int64_t C,
    bool packed) {
  enum { W = pack_of<T>::width };
  int64_t r = blockIdx.x, expert = plan[2 * r + 1];
  EACH_PACK(c, C, W) {
    float x[W], b[W];
    EACH_LANE(k, W) x[k] = b[k] = 0;
    if (expert >= 0) {
      row_load(x, rows + r * C, c, C, packed);
      row_load(b, bias + (expert - first) * C, c, C, packed);
    }
    EACH_LANE(k, W) x[k] += b[k];
    row_store(out + r * C, x, c, C, packed);
  }
}

extern "C" void tsr_cuda_expert_add(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const void *rows, const void *bias,
    const int32_t *plan, int64_t first, int64_t R, int64_t C) {
  if (R <= 0 || C <= 0) return;
  bool packed = C % 8 == 0 && is_aligned(out, 16) && is_aligned(rows, 16) && is_aligned(bias, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          expert_add<T>, launch_rows(R, C), s, (T *)out, (const T *)rows, (const T *)bias, plan,
          first, C, packed))
}

/* ---- sums over a token's experts ---- */

static __global__ void slots_clear(int32_t *row_of, int64_t slots) {
  for (int64_t i = map_thread(); i < slots; i += map_threads()) row_of[i] = -1;
}
static __global__ void slots_find(int32_t *row_of, const int32_t *plan, int64_t R) {
  for (int64_t r = map_thread(); r < R; r += map_threads())
    if (plan[2 * r] >= 0) row_of[plan[2 * r]] = (int32_t)r;
}

extern "C" void tsr_cuda_expert_row_of(
    tsr_cuda_stream s, int32_t *row_of, const int32_t *plan, int64_t slots, int64_t R) {
  if (slots > 0) TSR_LAUNCH(slots_clear, launch_map(slots), s, row_of, slots);
  if (R > 0) TSR_LAUNCH(slots_find, launch_map(R), s, row_of, plan, R);
}

/* A choice of the block's token: its row, -1: not here, its expert's place in the tree of odd * 2^p
 * leaves, a run of `odd` and the place in it, and its weight. */
typedef struct {
  int32_t row;
  uint32_t run, place;
  float weight;
} chosen_row;
static_assert(sizeof(chosen_row) == EXPERT_CHOICE_BYTES, "launch_combine_rows");

static __device__ inline int bit_length(uint32_t x) { return 32 - __clz((int)x); }

/* The height of the lowest node above both of two leaves, a before b: a number that grows from node
 * to node on the way up from any leaf (kernels/cpu/experts.c has the reason). */
static __device__ inline int common_height(const chosen_row &a, const chosen_row &b) {
  return a.run != b.run ? 32 + bit_length(a.run ^ b.run) : bit_length(a.place ^ b.place);
}

/* A tree over 32-bit numbers of leaves is no deeper. */
enum { COMBINE_DEPTH = 32 };

/* Sums of W columns: a stack of partial sums as in base/reduction_tree.h, of which only present
 * leaves are pushed. When a leaf comes, all nodes below the lowest one that it shares with the leaf
 * before are complete, and are merged. */
template <int W> struct combined_columns {
  float stack[COMBINE_DEPTH][W];
  int heights[COMBINE_DEPTH]; /* of the node where entries i and i + 1 meet */
  int entries;
  chosen_row last;
};

template <int W> static __device__ inline void merge_columns(combined_columns<W> &s) {
  s.entries--;
  EACH_LANE(i, W) s.stack[s.entries - 1][i] += s.stack[s.entries][i];
}

/* Adds columns [c, c + W) of the rows of `count` choices. */
template <typename T, int W, bool WEIGHTED>
static __device__ inline void add_choices(
    combined_columns<W> &s, const T *rows, const chosen_row *chosen, int64_t count, int64_t c,
    int64_t C, bool packed) {
  for (int64_t j = 0; j < count; j++) {
    float x[W];
    if (chosen[j].row < 0) continue;
    if (s.entries > 0) {
      int height = common_height(s.last, chosen[j]);
      while (s.entries > 1 && s.heights[s.entries - 2] < height) merge_columns(s);
      s.heights[s.entries - 1] = height;
    }
    row_load(x, rows + chosen[j].row * C, c, C, packed);
    EACH_LANE(i, W) s.stack[s.entries][i] = WEIGHTED ? rounded<T>(chosen[j].weight * x[i]) : x[i];
    s.entries++;
    s.last = chosen[j];
  }
}

/* A block's token; its choices are in shared memory by chunks of EXPERT_CHOICES_AT_ONCE. */
template <typename T, typename Y, bool WEIGHTED>
static __global__ void combine_rows(
    Y *y, const T *rows, const float *weights, const int32_t *plan, const int32_t *row_of,
    int64_t k, int64_t C, uint32_t odd, bool packed) {
  enum { W = pack_of<T>::width };
  TSR_SHARED(chosen_row, chosen);
  const int64_t token = blockIdx.x, most = EXPERT_CHOICES_AT_ONCE;
  for (int64_t first = 0; first < C; first += (int64_t)blockDim.x * W) {
    int64_t c = first + (int64_t)threadIdx.x * W;
    combined_columns<W> sum;
    sum.entries = 0;
    for (int64_t at = 0; at < k; at += most) {
      int64_t count = k - at < most ? k - at : most;
      bool there = k <= most && first > 0; /* the one chunk, since before */
      if (!there) __syncthreads();
      for (int64_t j = threadIdx.x; j < count && !there; j += blockDim.x) {
        int32_t row = row_of[token * k + at + j];
        uint32_t expert = row < 0 ? 0 : (uint32_t)plan[2 * (int64_t)row + 1];
        float weight = WEIGHTED ? weights[token * k + at + j] : 1;
        chosen[j] = {row, expert / odd, expert % odd, weight};
      }
      if (!there) __syncthreads();
      if (c < C) add_choices<T, W, WEIGHTED>(sum, rows, chosen, count, c, C, packed);
    }
    if (c >= C) continue;
    while (sum.entries > 1) merge_columns(sum);
    float total[W];
    EACH_LANE(i, W) total[i] = sum.entries ? sum.stack[0][i] + 0.0f : 0; /* -0 + 0 = +0 */
    row_store(y + token * C, total, c, C, packed);
  }
}

/* The statement for two types of which one is f32, or both are the same. */
#define BY_TWO_TYPES(a, T, b, Y, ...)                                                              \
  if ((a) == (b)) TSR_BY_TYPE(a, T, using Y = T; __VA_ARGS__)                                      \
  else if ((a) == TSR_CUDA_F32) TSR_BY_TYPE(b, Y, using T = float; __VA_ARGS__)                    \
  else TSR_BY_TYPE(a, T, using Y = float; __VA_ARGS__)

template <bool WEIGHTED>
static void combine(
    tsr_cuda_stream s, const tsr_experts *e, tsr_cuda_type tokens, void *y, tsr_cuda_type type,
    const void *rows, const float *weights, const int32_t *plan, const int32_t *row_of, int64_t S,
    int64_t C) {
  bool packed = C % 8 == 0 && is_aligned(y, 16) && is_aligned(rows, 16);
  uint32_t odd = (uint32_t)tsr_tree_odd(e->E);
  BY_TWO_TYPES(
      type, T, tokens, Y,
      TSR_LAUNCH(
          (combine_rows<T, Y, WEIGHTED>), launch_combine_rows(S, e->k, C), s, (Y *)y,
          (const T *)rows, weights, plan, row_of, e->k, C, odd, packed))
}

extern "C" void tsr_cuda_combine_rows(
    tsr_cuda_stream s, const tsr_experts *e, tsr_cuda_type tokens, void *y, tsr_cuda_type type,
    const void *rows, const float *weights, const int32_t *plan, const int32_t *row_of, int64_t S,
    int64_t C) {
  if (S <= 0 || C <= 0) return;
  if (weights) combine<true>(s, e, tokens, y, type, rows, weights, plan, row_of, S, C);
  else combine<false>(s, e, tokens, y, type, rows, NULL, plan, row_of, S, C);
}

/* ---- the gradient of the combination ---- */

/* EXPERT_ROW_LANES threads a row: each has a chain of the products of dy and row in its columns,
 * and neighbours add theirs. dweights are zeros. */
template <typename T, typename Y>
static __global__ void combine_rows_backward(
    T *drows, float *dweights, const Y *dy, const T *rows, const float *weights,
    const int32_t *plan, int64_t k, int64_t R, int64_t C) {
  int64_t row = map_thread() / EXPERT_ROW_LANES;
  int lane = (int)threadIdx.x % EXPERT_ROW_LANES;
  int64_t slot = row < R ? plan[2 * row] : -1;
  float weight = slot < 0 ? 0 : weights[slot], sum = 0;
  for (int64_t c = lane; c < C && row < R; c += EXPERT_ROW_LANES) {
    float d = slot < 0 ? 0 : number_load(dy + slot / k * C + c);
    number_store(drows + row * C + c, slot < 0 ? 0 : weight * d);
    if (slot >= 0) sum += d * number_load(rows + row * C + c);
  }
  for (int step = 1; step < EXPERT_ROW_LANES; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (slot >= 0 && lane == 0) dweights[slot] = sum;
}

extern "C" void tsr_cuda_combine_rows_backward(
    tsr_cuda_stream s, tsr_cuda_type type, void *drows, float *dweights, tsr_cuda_type tokens,
    const void *dy, const void *rows, const float *weights, const int32_t *plan, int64_t S,
    int64_t k, int64_t R, int64_t C) {
  tsr_cuda_zero(s, dweights, S * k * (int64_t)sizeof *dweights);
  if (R <= 0) return;
  BY_TWO_TYPES(
      type, T, tokens, Y,
      TSR_LAUNCH(
          (combine_rows_backward<T, Y>), launch_combine_backward(R), s, (T *)drows, dweights,
          (const Y *)dy, (const T *)rows, weights, plan, k, R, C))
}
