// SPDX-License-Identifier: Apache-2.0
/* Attention backward with wgmma and the tensor memory accelerator. As in
 * attention_tensor_backward.cu, one pass has a tile of keys and goes over tiles of queries for dk
 * and dv, and the other has a tile of queries for dq and goes over tiles of keys.
 *
 * In both a block keeps a tile of two matrices, its own: keys and values where KEYS is true, else
 * queries and douts. The other two come, tile by tile, through two stages that one warp copies
 * into. Each of the other warpgroups has 64 rows of the own tile; while one computes gradients of
 * scores, the tensor cores multiply for the other. Which bits a row has, and what rows that are not
 * a part's may hold, is as in attention_wgmma.cu. */
#include "kernels/cuda/attention_wgmma.cuh"

/* Of keys and values and of queries and douts, in the pass's order. */
typedef struct {
  tensor_map own[2], others[2];
} wgmma_backward_maps;

/* dq, or dk and dv. */
typedef struct {
  uint16_t *of[2];
} wgmma_gradients;

/* Of all queries: stats (B, H, T, 2), a maximum and a sum, and delta (B, H, T). */
typedef struct {
  const float *stats, *delta;
} wgmma_statistics;

#if defined(TSR_EMULATED) || TMA_HAS

enum { OWN_FULL = 0, OWN_FREE = 1, OTHERS_FULL = 2, OTHERS_FREE = 2 + WGMMA_STAGES };

/* The queries' statistics, and addresses of the tiles and barriers. A tile lies as pieces of 64
 * columns. */
template <int W> struct wgmma_backward_parts {
  static constexpr uint32_t OWN_BYTES = WGMMA_OWN * W * 2, OTHER_BYTES = WGMMA_OTHERS * W * 2;
  static constexpr uint32_t TILES_BYTES = wgmma_backward_tile_bytes(W);
  float *rows; /* (WGMMA_OWN, 2), or of each stage (WGMMA_OTHERS, 2) */
  uint32_t tiles;

  __device__ inline uint32_t own(int i) const { return tiles + (uint32_t)i * OWN_BYTES; }
  __device__ inline uint32_t others(uint32_t n, int i) const {
    return tiles + 2 * OWN_BYTES + (n % WGMMA_STAGES * 2 + (uint32_t)i) * OTHER_BYTES;
  }
  __device__ inline float *rows_of(uint32_t n) const {
    return rows + n % WGMMA_STAGES * 2 * WGMMA_OTHERS;
  }
  __device__ inline uint32_t barrier(int which, uint32_t n = 0) const {
    return tiles + TILES_BYTES + MBARRIER_BYTES * ((uint32_t)which + n % WGMMA_STAGES);
  }
};

/* A block's tile: of head `own` of its own matrices, and of heads [others, others + count) of the
 * others. */
typedef struct {
  int b, first, own, others, count;
} wgmma_item;

template <bool KEYS> static __device__ inline wgmma_item wgmma_item_of(const tsr_attention &a) {
  int lines = (int)(KEYS ? a.G : a.H), heads = (int)(a.H / a.G);
  attention_item item = KEYS ? attention_item_of_keys(a.B * lines, WGMMA_OWN)
                             : attention_item_of_queries(a.B * lines, WGMMA_OWN);
  int b = (int)(item.line / lines), own = (int)(item.line % lines);
  wgmma_item of = {b, (int)item.first, own, KEYS ? own * heads : own / heads, KEYS ? heads : 1};
  return of;
}

/* The others that a part's rows meet. */
template <bool KEYS>
static __device__ inline wgmma_range
wgmma_others(const tsr_attention &a, const attention_part &part) {
  if (!KEYS) return wgmma_keys(a, part, WGMMA_OTHERS);
  wgmma_range r;
  r.begin = attention_queries(a, part.first, WGMMA_OTHERS);
  r.end = attention_queries_end(a, r.begin, part.first + part.count);
  return r;
}

/* Of a head's queries from the one at `begin` on. */
static __device__ inline attention_statistics
wgmma_statistics_at(const tsr_attention &a, const wgmma_statistics &x, int b, int head, int begin) {
  return attention_statistics_at(x.stats, x.delta, (b * a.H + head) * a.T + begin);
}

/* Writes the statistics (N, 2) of a head's queries from `first` on, which exist before `end`; by a
 * warp. */
template <int N>
static __device__ inline void
wgmma_rows_write(float *rows, const attention_statistics &at, int first, int end) {
#pragma unroll 1 /* the warp has few registers */
  for (int i = tensor_lane(); i < N; i += TENSOR_LANES) {
    query_row row = query_row_at(at, first + i, end);
    rows[2 * i] = row.sum;
    rows[2 * i + 1] = row.delta;
  }
}

/* Copies two tiles, and says that this lane wrote the statistics. */
template <int W, int ROWS>
static __device__ inline void wgmma_tiles_load(
    const tensor_map (&maps)[2], uint32_t first, uint32_t second, uint32_t barrier, int head,
    int row, int sample) {
  if (tensor_lane() == 0) {
    wgmma_tile_load<W>(first, &maps[0], barrier, ROWS, head, row, sample);
    wgmma_tile_load<W>(second, &maps[1], barrier, ROWS, head, row, sample);
  }
  mbarrier_arrive(barrier);
}

/* The copies and statistics of all parts, by one warp. */
template <int W, bool KEYS>
static __device__ inline void wgmma_backward_produce(
    const tsr_attention &a, const wgmma_backward_maps &maps, const wgmma_backward_parts<W> &p,
    const wgmma_statistics &x) {
  const wgmma_item item = wgmma_item_of<KEYS>(a);
  const int end = (int)attention_tile_end(a, item.first, WGMMA_OWN);
  uint32_t n = 0, parts = 0;
  for (int own = (int)item.first; own < end; parts++) {
    attention_part part = attention_part_at(a, item.b, own, end, KEYS);
    wgmma_range others = wgmma_others<KEYS>(attention_of_part(a, part), part);
    const int begin = (int)part.begin, length = (int)part.length, until = (int)others.end;
    own = (int)(part.row + part.count);
    mbarrier_wait(p.barrier(OWN_FREE), parts % 2 ^ 1);
    if (!KEYS)
      wgmma_rows_write<WGMMA_OWN>(
          p.rows, wgmma_statistics_at(a, x, item.b, item.own, begin), (int)part.first,
          (int)(part.first + part.count));
    wgmma_tiles_load<W, WGMMA_OWN>(
        maps.own, p.own(0), p.own(1), p.barrier(OWN_FULL), item.own, begin + (int)part.first,
        item.b);
#pragma unroll 1
    for (int head = item.others; head < item.others + item.count; head++)
#pragma unroll 1
      for (int t = (int)others.begin; t < until; t += WGMMA_OTHERS, n++) {
        mbarrier_wait(p.barrier(OTHERS_FREE, n), wgmma_parity(n) ^ 1);
        if (KEYS)
          wgmma_rows_write<WGMMA_OTHERS>(
              p.rows_of(n), wgmma_statistics_at(a, x, item.b, head, begin), t, length);
        wgmma_tiles_load<W, WGMMA_OTHERS>(
            maps.others, p.others(n, 0), p.others(n, 1), p.barrier(OTHERS_FULL, n), head, begin + t,
            item.b);
      }
  }
}

/* What is seen of the warp's rows and the tile from `t` on, of what is seen where that is 0. */
template <bool KEYS>
static __device__ inline attention_bounds wgmma_bounds(attention_bounds b, int t) {
  attention_bounds at = {KEYS ? b.end : b.end - t, b.lower, b.upper};
  at.lower += KEYS ? t : -t;
  at.upper += KEYS ? t : -t;
  return at;
}

/* The k-th 16 columns of a warp's sums (16, N). Gradients of so many at a time take few registers
 * beside the sums. */
typedef float sums_16[2][4];
static __device__ inline sums_16 &columns_16(float (*sums)[4], int k) {
  return *(sums_16 *)sums[2 * k];
}

/* Adds what the n-th tile of others, which begins at `t`, gives to the warp's rows from `row` of
 * the own tile on; `bounds` are of the tile at 0. */
template <tsr_cuda_type TYPE, int W, tensor_variant VARIANT, bool KEYS>
static __device__ inline void wgmma_backward_add(
    float (&sums)[1 + KEYS][W / 8][4], const wgmma_backward_parts<W> &p, const tsr_attention &a,
    int row, const attention_bounds &bounds, int t, uint32_t n) {
  uint32_t group = (uint32_t)(row / WGMMA_ROWS * WGMMA_ROWS * TMA_ROW_BYTES);
  float scores[WGMMA_OTHERS / 8][4], grads[WGMMA_OTHERS / 8][4];
  uint32_t weights[1 + KEYS][WGMMA_OTHERS / 16][4];
  mbarrier_wait(p.barrier(OTHERS_FULL, n), wgmma_parity(n));
  wgmma_fence(scores, grads);
  wgmma_dot_begin<TYPE, W, WGMMA_OWN>(scores, p.own(0) + group, p.others(n, 0));
  wgmma_dot_begin<TYPE, W, WGMMA_OWN>(grads, p.own(1) + group, p.others(n, 1));
  wgmma_commit();
  wgmma_wait<0>(scores, grads);
#pragma unroll
  for (int k = 0; k < WGMMA_OTHERS / 16; k++) {
    const float *rows = KEYS ? p.rows_of(n) + 2 * 16 * k : p.rows;
    sums_16 &score = columns_16(scores, k), &grad = columns_16(grads, k);
    gradients<VARIANT, 16, KEYS>(
        score, grad, a, rows, NULL, wgmma_bounds<KEYS>(bounds, t + 16 * k), row, WGMMA_OWN);
    tensor_a_of_sums<TYPE>(weights[0][k], grad[0], grad[1]);
    if constexpr (KEYS) tensor_a_of_sums<TYPE>(weights[1][k], score[0], score[1]);
  }
  if constexpr (KEYS) {
    wgmma_fence(sums[0], sums[1], weights[0], weights[1]);
    wgmma_add_begin<TYPE>(sums[0], weights[0], p.others(n, 0));
    wgmma_add_begin<TYPE>(sums[1], weights[1], p.others(n, 1));
    wgmma_commit();
    wgmma_wait<0>(sums[0], sums[1], weights[0], weights[1]);
  } else {
    wgmma_fence(sums[0], weights[0]);
    wgmma_add_begin<TYPE>(sums[0], weights[0], p.others(n, 0));
    wgmma_commit();
    wgmma_wait<0>(sums[0], weights[0]);
  }
  __syncwarp(); /* all lanes have read the statistics */
  wgmma_release(p.barrier(OTHERS_FREE, n));
}

/* The warp's rows of a part. */
template <tsr_cuda_type TYPE, int W, bool KEYS>
static __device__ inline void wgmma_write(
    const wgmma_gradients &to, const float (&sums)[1 + KEYS][W / 8][4], const tsr_attention &a,
    const wgmma_item &item, const attention_part &part, int row) {
  const float scale[2] = {a.scale, a.scale}, none[2] = {1, 1};
  int64_t heads = KEYS ? a.G : a.H, stride = heads * W, left = part.count - row;
  int64_t at = attention_own_row(a, part, item.b, item.own, heads) * W + row * stride;
  wgmma_store<TYPE, W>(to.of[0] + at, stride, left, sums[0], scale);
  if constexpr (KEYS) wgmma_store<TYPE, W>(to.of[1] + at, stride, left, sums[1], none);
}

template <tsr_cuda_type TYPE, int W, tensor_variant VARIANT, bool KEYS>
static __device__ inline void wgmma_backward_consume(
    const tsr_attention &a, const wgmma_backward_parts<W> &p, const wgmma_gradients &to) {
  const wgmma_item item = wgmma_item_of<KEYS>(a);
  const int end = (int)attention_tile_end(a, item.first, WGMMA_OWN);
  const int row = ((int)threadIdx.x / WGMMA_THREADS - 1) * WGMMA_ROWS +
                  (int)threadIdx.x % WGMMA_THREADS / TENSOR_LANES * 16;
  uint32_t n = 0, parts = 0;
  for (int own = (int)item.first; own < end; parts++) {
    attention_part part = attention_part_at(a, item.b, own, end, KEYS);
    tsr_attention alone = attention_of_part(a, part);
    wgmma_range others = wgmma_others<KEYS>(alone, part);
    const int64_t first = part.first + row;
    const attention_bounds bounds = attention_bounds_of(alone, KEYS ? 0 : first, KEYS ? first : 0);
    const int until = (int)others.end;
    float sums[1 + KEYS][W / 8][4];
    zero<W, 1 + KEYS>(sums);
    mbarrier_wait(p.barrier(OWN_FULL), parts % 2);
#pragma unroll 1
    for (int head = 0; head < item.count; head++)
#pragma unroll 1
      for (int t = (int)others.begin; t < until; t += WGMMA_OTHERS, n++)
        wgmma_backward_add<TYPE, W, VARIANT, KEYS>(sums, p, a, row, bounds, t, n);
    wgmma_release(p.barrier(OWN_FREE));
    /* anew: beside the sums it would be spilled */
    part = attention_part_at(a, item.b, tensor_here(own), end, KEYS);
    wgmma_write<TYPE, W, KEYS>(to, sums, a, item, part, row);
    own = (int)(part.row + part.count);
  }
}

/* By thread 0. A phase that is full has two copies, and the statistics of a warp's lanes. */
template <int W>
static __device__ inline void wgmma_backward_barriers_init(const wgmma_backward_parts<W> &p) {
  const uint32_t full = 2 + TENSOR_LANES, warps = 4 * WGMMA_CONSUMERS;
  mbarrier_init(p.barrier(OWN_FULL), full);
  mbarrier_init(p.barrier(OWN_FREE), warps);
  for (uint32_t n = 0; n < WGMMA_STAGES; n++) {
    mbarrier_init(p.barrier(OTHERS_FULL, n), full);
    mbarrier_init(p.barrier(OTHERS_FREE, n), warps);
  }
  tma_fence();
}

#endif

/* Registers as in attention_wgmma_forward. */
template <tsr_cuda_type TYPE, int W, tensor_variant VARIANT, bool KEYS>
static __global__ void __launch_bounds__(WGMMA_BLOCK_THREADS, 1) attention_wgmma_backward(
    const tsr_attention a, const __grid_constant__ wgmma_backward_maps maps,
    const wgmma_gradients to, const wgmma_statistics statistics) {
#if defined(TSR_EMULATED) || TMA_HAS
  TSR_SHARED(unsigned char, shared);
  const wgmma_backward_parts<W> p = {(float *)shared, tma_shared(shared + WGMMA_ROWS_BYTES)};
  if (threadIdx.x == 0) wgmma_backward_barriers_init(p);
  __syncthreads();
  if (threadIdx.x < WGMMA_THREADS) {
    registers_leave<40>();
    if (threadIdx.x < TENSOR_LANES) wgmma_backward_produce<W, KEYS>(a, maps, p, statistics);
  } else {
    registers_take<232>();
    wgmma_backward_consume<TYPE, W, VARIANT, KEYS>(a, p, to);
  }
#else
  __trap();
#endif
}

typedef struct {
  const void *dout, *q, *k, *v;
  wgmma_statistics statistics;
} wgmma_inputs;

template <tsr_cuda_type TYPE, int W, tensor_variant VARIANT, bool KEYS>
static void backward(
    tsr_cuda_stream s, const tsr_attention *a, const wgmma_gradients &to, const wgmma_inputs &x) {
  const attention_tile tile = wgmma_backward_tile(W);
  const int of_queries = KEYS ? WGMMA_OTHERS : WGMMA_OWN, of_keys = KEYS ? WGMMA_OWN : WGMMA_OTHERS;
  const tensor_map q = wgmma_map(x.q, a->B, a->T, a->H, W, of_queries),
                   dout = wgmma_map(x.dout, a->B, a->T, a->H, W, of_queries),
                   k = wgmma_map(x.k, a->B, a->T, a->G, W, of_keys),
                   v = wgmma_map(x.v, a->B, a->T, a->G, W, of_keys);
  const wgmma_backward_maps maps = {
      {KEYS ? k : q, KEYS ? v : dout}, {KEYS ? q : k, KEYS ? dout : v}};
  TSR_ALLOW_SHARED((attention_wgmma_backward<TYPE, W, VARIANT, KEYS>), tile.shared_bytes);
  TSR_LAUNCH(
      (attention_wgmma_backward<TYPE, W, VARIANT, KEYS>),
      launch_attention(&tile, tsr_attention_own(a), a->B * (KEYS ? a->G : a->H)), s, *a, maps, to,
      x.statistics);
}

template <tsr_cuda_type TYPE, int W, tensor_variant VARIANT>
static void backward_passes(
    tsr_cuda_stream s, const tsr_attention *a, const wgmma_gradients &dq,
    const wgmma_gradients &dkv, const wgmma_inputs &x) {
  backward<TYPE, W, VARIANT, true>(s, a, dkv, x);
  backward<TYPE, W, VARIANT, false>(s, a, dq, x);
}

template <tsr_cuda_type TYPE, tensor_variant VARIANT>
static void backward_width(
    tsr_cuda_stream s, const tsr_attention *a, const wgmma_gradients &dq,
    const wgmma_gradients &dkv, const wgmma_inputs &x) {
  if (a->D == 64) backward_passes<TYPE, 64, VARIANT>(s, a, dq, dkv, x);
  else backward_passes<TYPE, 128, VARIANT>(s, a, dq, dkv, x);
}

template <tsr_cuda_type TYPE>
static void backward_variant(
    tsr_cuda_stream s, const tsr_attention *a, const wgmma_gradients &dq,
    const wgmma_gradients &dkv, const wgmma_inputs &x) {
  if (a->soft_cap != 0) backward_width<TYPE, TENSOR_SOFT_CAP>(s, a, dq, dkv, x);
  else backward_width<TYPE, TENSOR_PLAIN>(s, a, dq, dkv, x);
}

void tsr_cuda_attention_wgmma_gradients(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, void *dq, void *dk, void *dv,
    const void *dout, const void *q, const void *k, const void *v, const float *stats,
    const float *delta) {
  const wgmma_gradients to = {{(uint16_t *)dq, NULL}}, both = {{(uint16_t *)dk, (uint16_t *)dv}};
  const wgmma_inputs x = {dout, q, k, v, {stats, delta}};
  if (type == TSR_CUDA_BF16) backward_variant<TSR_CUDA_BF16>(s, a, to, both, x);
  else backward_variant<TSR_CUDA_F16>(s, a, to, both, x);
}
