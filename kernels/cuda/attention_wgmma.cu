// SPDX-License-Identifier: Apache-2.0
/* Attention forward with wgmma and the tensor memory accelerator, as FlashAttention-3 (Shah et al.
 * 2024): one warp copies tiles of keys and values through two stages; each of the other warpgroups
 * has 64 queries of the block's tile. While a tile's softmax is computed, the tensor cores multiply
 * the probabilities of the tile before it with their values.
 *
 * A row's numbers depend on its document's positions alone, as those of attention_tensor.cu: tiles
 * of keys begin at multiples of WGMMA_KEYS behind the document's first token. Rows of a tile that
 * are not the part's are computed with what lies there, and not written. Keys and values behind a
 * document's end are multiplied by 0 where the sequence goes on there, and are zeros behind the
 * sequence's end. */
#include "kernels/cuda/attention_wgmma.cuh"

typedef struct {
  tensor_map q, k, v;
} wgmma_maps;

#if defined(TSR_EMULATED) || TMA_HAS

enum { QUERIES_FULL = 0, QUERIES_FREE = 1, KEYS_FULL = 2, KEYS_FREE = 4, VALUES_FULL = 6 };
enum { VALUES_FREE = 8 }; /* barriers; of tiles one a stage */

/* Addresses of the tiles and barriers. A tile lies as pieces of 64 columns. */
template <int W> struct wgmma_parts {
  static constexpr uint32_t TILE_BYTES = WGMMA_KEYS * W * 2, QUERIES_BYTES = WGMMA_QUERIES * W * 2;
  static constexpr uint32_t TILES_BYTES = wgmma_tile_bytes(W);
  uint32_t queries;

  __device__ inline uint32_t keys(uint32_t n) const {
    return queries + QUERIES_BYTES + n % WGMMA_STAGES * 2 * TILE_BYTES;
  }
  __device__ inline uint32_t values(uint32_t n) const { return keys(n) + TILE_BYTES; }
  __device__ inline uint32_t barrier(int which, uint32_t n = 0) const {
    return queries + TILES_BYTES + MBARRIER_BYTES * ((uint32_t)which + n % WGMMA_STAGES);
  }
};

/* The copies of all parts, by one warp. */
template <int W>
static __device__ inline void
wgmma_produce(const tsr_attention &a, const wgmma_maps &maps, const wgmma_parts<W> &p) {
  attention_item item = attention_item_of_queries(a.B * a.H, WGMMA_QUERIES);
  int64_t b = item.line / a.H, h = item.line % a.H, g = h / (a.H / a.G);
  int64_t end = attention_tile_end(a, item.first, WGMMA_QUERIES);
  uint32_t n = 0, parts = 0;
  for (int64_t own = item.first; own < end; parts++) {
    attention_part part = attention_part_at(a, b, own, end, false);
    wgmma_range keys = wgmma_keys(attention_of_part(a, part), part, WGMMA_KEYS);
    own = part.row + part.count;
    if (tensor_lane() > 0) continue;
    mbarrier_wait(p.barrier(QUERIES_FREE), parts % 2 ^ 1);
    wgmma_tile_load<W>(p.queries, &maps.q, p.barrier(QUERIES_FULL), WGMMA_QUERIES, h, part.row, b);
    for (int64_t t = keys.begin; t < keys.end; t += WGMMA_KEYS, n++) {
      uint32_t free = wgmma_parity(n) ^ 1;
      mbarrier_wait(p.barrier(KEYS_FREE, n), free);
      wgmma_tile_load<W>(
          p.keys(n), &maps.k, p.barrier(KEYS_FULL, n), WGMMA_KEYS, g, part.begin + t, b);
      mbarrier_wait(p.barrier(VALUES_FREE, n), free);
      wgmma_tile_load<W>(
          p.values(n), &maps.v, p.barrier(VALUES_FULL, n), WGMMA_KEYS, g, part.begin + t, b);
    }
  }
}

/* A warpgroup's 64 queries, and the probabilities of the last tile in halves. */
template <int W> struct query_rows {
  forward_rows<W, 1> sums;
  float scores[WGMMA_KEYS / 8][4], shrunk[2];
  uint32_t weights[WGMMA_KEYS / 16][4];
};

/* Begins scores = queries . keys of tile n. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void
wgmma_scores_begin(query_rows<W> *rows, const wgmma_parts<W> &p, uint32_t queries, uint32_t n) {
  mbarrier_wait(p.barrier(KEYS_FULL, n), wgmma_parity(n));
  wgmma_fence(rows->scores);
  wgmma_dot_begin<TYPE, W, WGMMA_QUERIES>(rows->scores, queries, p.keys(n));
  wgmma_commit();
}

/* Begins out += weights . values of tile n. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void
wgmma_values_begin(query_rows<W> *rows, const wgmma_parts<W> &p, uint32_t n) {
  mbarrier_wait(p.barrier(VALUES_FULL, n), wgmma_parity(n));
  wgmma_fence(rows->sums.out[0], rows->weights);
  wgmma_add_begin<TYPE>(rows->sums.out[0], rows->weights, p.values(n));
  wgmma_commit();
}

/* Scores of the tile from key t on to probabilities, of the warp's queries from `first` on. */
template <int W, bool SOFT_CAP>
static __device__ inline void
wgmma_softmax(query_rows<W> *rows, const tsr_attention &a, int64_t first, int64_t t) {
  float factor = scores_factor<WGMMA_KEYS>(rows->scores, a, SOFT_CAP);
  scores_hide<WGMMA_KEYS, false>(rows->scores, attention_bounds_of(a, first, t));
  softmax_step<WGMMA_KEYS>(
      rows->sums.max[0], rows->sums.sum[0], rows->shrunk, rows->scores, factor);
}

/* The sums to the new maximum, and the probabilities to halves. */
template <tsr_cuda_type TYPE, int W>
static __device__ inline void wgmma_softmax_end(query_rows<W> *rows) {
#pragma unroll
  for (int n = 0; n < W / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) rows->sums.out[0][n][i] *= rows->shrunk[i / 2];
#pragma unroll
  for (int k = 0; k < WGMMA_KEYS / 16; k++)
    tensor_a_of_sums<TYPE>(rows->weights[k], rows->scores[2 * k], rows->scores[2 * k + 1]);
}

/* The sums over all tiles, of which *n count those of the parts before; `a` has the part's
 * document alone. */
template <tsr_cuda_type TYPE, int W, bool SOFT_CAP>
static __device__ inline void wgmma_add(
    query_rows<W> *rows, const wgmma_parts<W> &p, const tsr_attention &a, const wgmma_range &keys,
    int64_t first, uint32_t queries, uint32_t *n) {
  wgmma_scores_begin<TYPE>(rows, p, queries, *n);
  wgmma_wait<0>(rows->scores);
  wgmma_release(p.barrier(KEYS_FREE, *n));
  wgmma_softmax<W, SOFT_CAP>(rows, a, first, keys.begin);
  wgmma_softmax_end<TYPE>(rows);
  for (int64_t t = keys.begin + WGMMA_KEYS; t < keys.end; t += WGMMA_KEYS) {
    uint32_t before = (*n)++;
    wgmma_scores_begin<TYPE>(rows, p, queries, *n);
    wgmma_values_begin<TYPE>(rows, p, before);
    wgmma_wait<1>(rows->scores);
    wgmma_release(p.barrier(KEYS_FREE, *n));
    wgmma_softmax<W, SOFT_CAP>(rows, a, first, t);
    wgmma_wait<0>(rows->sums.out[0], rows->weights);
    wgmma_release(p.barrier(VALUES_FREE, before));
    wgmma_softmax_end<TYPE>(rows);
  }
  wgmma_release(p.barrier(QUERIES_FREE));
  wgmma_values_begin<TYPE>(rows, p, *n);
  wgmma_wait<0>(rows->sums.out[0], rows->weights);
  wgmma_release(p.barrier(VALUES_FREE, (*n)++));
}

template <tsr_cuda_type TYPE, int W, bool SOFT_CAP>
static __device__ inline void
wgmma_consume(const tsr_attention &a, const wgmma_parts<W> &p, uint16_t *out, float *stats) {
  attention_item item = attention_item_of_queries(a.B * a.H, WGMMA_QUERIES);
  int64_t b = item.line / a.H, h = item.line % a.H;
  int64_t end = attention_tile_end(a, item.first, WGMMA_QUERIES);
  int group = (int)threadIdx.x / WGMMA_THREADS - 1;
  int row = group * WGMMA_ROWS + (int)threadIdx.x % WGMMA_THREADS / TENSOR_LANES * 16;
  uint32_t queries = p.queries + (uint32_t)(group * WGMMA_ROWS * TMA_ROW_BYTES);
  uint32_t n = 0, parts = 0;
  for (int64_t own = item.first; own < end; parts++) {
    attention_part part = attention_part_at(a, b, own, end, false);
    tsr_attention alone = attention_of_part(a, part);
    wgmma_range keys = wgmma_keys(alone, part, WGMMA_KEYS);
    query_rows<W> rows;
    rows_begin(&rows.sums);
    mbarrier_wait(p.barrier(QUERIES_FULL), parts % 2);
    wgmma_add<TYPE, W, SOFT_CAP>(&rows, p, alone, keys, part.first + row, queries, &n);
    rows_end(&rows.sums);
    float factor[2], *numbers = stats + 2 * (item.line * attention_own(a) + part.row + row);
    rows_statistics(factor, rows.sums, 0, a, h, part.count - row, numbers);
    int64_t stride = a.H * W, to = (b * attention_own(a) + part.row + row) * stride + h * W;
    wgmma_store<TYPE, W>(out + to, stride, part.count - row, rows.sums.out[0], factor);
    own = part.row + part.count;
  }
}

/* By thread 0. */
template <int W> static __device__ inline void wgmma_barriers_init(const wgmma_parts<W> &p) {
  const uint32_t warps = 4 * WGMMA_CONSUMERS;
  mbarrier_init(p.barrier(QUERIES_FULL), 1);
  mbarrier_init(p.barrier(QUERIES_FREE), warps);
  for (uint32_t n = 0; n < WGMMA_STAGES; n++) {
    mbarrier_init(p.barrier(KEYS_FULL, n), 1);
    mbarrier_init(p.barrier(VALUES_FULL, n), 1);
    mbarrier_init(p.barrier(KEYS_FREE, n), warps);
    mbarrier_init(p.barrier(VALUES_FREE, n), warps);
  }
  tma_fence();
}

#endif

/* A block of 384 threads begins with 168 registers each, which a multiprocessor's 64 Ki allow; 40
 * and 2 * 232 are as many. */
template <tsr_cuda_type TYPE, int W, bool SOFT_CAP>
static __global__ void __launch_bounds__(WGMMA_BLOCK_THREADS, 1) attention_wgmma_forward(
    const tsr_attention a, const __grid_constant__ wgmma_maps maps, uint16_t *out, float *stats) {
#if defined(TSR_EMULATED) || TMA_HAS
  TSR_SHARED(unsigned char, shared);
  const wgmma_parts<W> p = {tma_shared(shared)};
  if (threadIdx.x == 0) wgmma_barriers_init(p);
  __syncthreads();
  if (threadIdx.x < WGMMA_THREADS) {
    registers_leave<40>();
    if (threadIdx.x < TENSOR_LANES) wgmma_produce<W>(a, maps, p);
  } else {
    registers_take<232>();
    wgmma_consume<TYPE, W, SOFT_CAP>(a, p, out, stats);
  }
#else
  __trap();
#endif
}

template <tsr_cuda_type TYPE, int W, bool SOFT_CAP>
static void forward(
    tsr_cuda_stream s, const tsr_attention *a, uint16_t *out, float *stats,
    const wgmma_maps &maps) {
  const attention_tile tile = wgmma_tile(W);
  TSR_ALLOW_SHARED((attention_wgmma_forward<TYPE, W, SOFT_CAP>), tile.shared_bytes);
  TSR_LAUNCH(
      (attention_wgmma_forward<TYPE, W, SOFT_CAP>),
      launch_attention(&tile, tsr_attention_own(a), a->B * a->H), s, *a, maps, out, stats);
}

template <tsr_cuda_type TYPE, int W>
static void forward_variant(
    tsr_cuda_stream s, const tsr_attention *a, uint16_t *out, float *stats, const void *q,
    const void *k, const void *v) {
  const wgmma_maps maps = {
      wgmma_map(q, a->B, tsr_attention_own(a), a->H, W, WGMMA_QUERIES),
      wgmma_map(k, a->B, a->T, a->G, W, WGMMA_KEYS), wgmma_map(v, a->B, a->T, a->G, W, WGMMA_KEYS)};
  if (a->soft_cap != 0) forward<TYPE, W, true>(s, a, out, stats, maps);
  else forward<TYPE, W, false>(s, a, out, stats, maps);
}

template <tsr_cuda_type TYPE>
static void forward_width(
    tsr_cuda_stream s, const tsr_attention *a, uint16_t *out, float *stats, const void *q,
    const void *k, const void *v) {
  if (a->D == 64) forward_variant<TYPE, 64>(s, a, out, stats, q, k, v);
  else forward_variant<TYPE, 128>(s, a, out, stats, q, k, v);
}

extern "C" void tsr_cuda_attention_wgmma(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *of, void *out, float *stats,
    const void *q, const void *k, const void *v) {
  const tsr_attention a = attention_with_value_size(of);
  uint16_t *to = (uint16_t *)out;
  if (a.B * a.T * a.H * a.D == 0) return;
  if (type == TSR_CUDA_BF16) forward_width<TSR_CUDA_BF16>(s, &a, to, stats, q, k, v);
  else forward_width<TSR_CUDA_F16>(s, &a, to, stats, q, k, v);
}

extern "C" bool tsr_cuda_has_wgmma(void) {
  return tma_has_code((const void *)attention_wgmma_forward<TSR_CUDA_BF16, 64, false>) &&
         tma_find_encoder() != NULL;
}
