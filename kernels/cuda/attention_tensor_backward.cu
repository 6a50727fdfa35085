/* Attention backward with tensor cores; the formulas are attention_backward.cu's.
 *
 * One pass has a tile of keys, of which a warp has 16, and goes over the tiles of queries for dk
 * and dv; the other has a tile of queries for dq and goes over the tiles of keys. Either computes
 * the scores and dP with its own tile to the left, so that P f and dS lie in registers as the left
 * operand of the products that follow. The tile that comes next is fetched meanwhile. */
#include "kernels/cuda/tensor.cuh"

enum { WARPS = 4, THREADS = WARPS * TENSOR_LANES, TILE = 16 * WARPS };
#define LOG2_E 1.4426950408889634f

/* The tile that stays has TILE rows, those that come OTHERS. */
template <int W> struct tensor_backward {
  static constexpr int OTHERS = W > 64 ? 32 : 64, STRIDE = W + TENSOR_PAD;
  static constexpr int OWN_SIZE = TILE * STRIDE, OTHER_SIZE = OTHERS * STRIDE;
  static constexpr int ROWS = 3 * TILE; /* floats, of the one or the other tile */
  static constexpr size_t HALVES = 2 * OWN_SIZE + 4 * OTHER_SIZE;
  static constexpr size_t BYTES = HALVES * 2 + 2 * ROWS * 4 + TILE * OTHERS / ATTENTION_RUN * 2;
};

typedef struct {
  uint16_t *dq, *dk, *dv;
  const uint16_t *dout, *q, *k, *v;
  const float *stats, *delta;
} backward_arrays;

/* own: queries and douts, or keys and values, one behind the other; others: the other two, and the
 * same again for the tile that comes next; so the rows. */
typedef struct {
  uint16_t *own, *others;
  float *rows;
  uint16_t *bits; /* or NULL */
} backward_parts;

template <int W>
static __device__ inline backward_parts backward_layout(uint16_t *shared, const tsr_attention &a) {
  typedef tensor_backward<W> S;
  backward_parts p;
  p.own = shared;
  p.others = shared + 2 * S::OWN_SIZE;
  p.rows = (float *)(shared + S::HALVES);
  p.bits = a.dropout != 0 ? (uint16_t *)(p.rows + 2 * S::ROWS) : NULL;
  return p;
}

/* sums (16, N) = own (16 rows from `row` on) . others turned */
template <tsr_cuda_type TYPE, int W, int N>
static __device__ inline void
dot(float (&sums)[N / 8][4], const uint16_t *own, int row, const uint16_t *others) {
#pragma unroll
  for (int n = 0; n < N / 8; n++)
    for (int i = 0; i < 4; i++) sums[n][i] = 0;
#pragma unroll
  for (int d = 0; d < W; d += 16) {
    uint32_t a[4], b[4];
    tensor_a<W>(a, own, row, d);
#pragma unroll
    for (int n = 0; n < N / 8; n += 2) {
      tensor_b_of_rows<W>(b, others, n * 8, d);
      tensor_product<TYPE>(sums[n], a, b);
      tensor_product<TYPE>(sums[n + 1], a, b + 2);
    }
  }
}

/* sums (16, W) += weights (16, N) . others */
template <tsr_cuda_type TYPE, int W, int N>
static __device__ inline void
add(float (&sums)[W / 8][4], const float (&weights)[N / 8][4], const uint16_t *others) {
#pragma unroll
  for (int k = 0; k < N; k += 16) {
    uint32_t a[4], b[4];
    tensor_a_of_sums<TYPE>(a, weights[k / 8], weights[k / 8 + 1]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      tensor_b_of_columns<W>(b, others, k, n * 8);
      tensor_product<TYPE>(sums[n], a, b);
      tensor_product<TYPE>(sums[n + 1], a, b + 2);
    }
  }
}

/* Where a tile pair lies: its first query and key. `keys` is the width of the mask. */
typedef struct {
  int64_t query, key;
  int queries, keys;
} tile_place;

/* A score and its dP to P f and dS, for query q and key k of the tiles. */
static __device__ inline void gradient(
    float *score, float *grad, const tsr_attention &a, const float *rows, const uint16_t *bits,
    tile_place at, bool masked, int q, int k) {
  float max = rows[3 * q], share = rows[3 * q + 1], delta = rows[3 * q + 2], f = 1;
  float x = tensor_power(*score * (a.scale * LOG2_E) - max * LOG2_E) * share;
  if (masked && !attention_seen(a, at.query + q, at.key + k)) x = 0;
  if (bits) f = attention_bit(bits, at.keys, q, k) ? attention_kept(a) : 0.0f;
  *score = x * f;
  *grad = x * (*grad * f - delta);
}

/* The same for a warp's numbers (16, N): rows are queries, or where `turned` keys, from row on. */
template <int N, bool turned>
static __device__ inline void gradients(
    float (&scores)[N / 8][4], float (&grads)[N / 8][4], const tsr_attention &a, const float *rows,
    const uint16_t *bits, tile_place at, int row) {
  bool masked = attention_masked(a, at.query, at.key, at.keys);
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int own = row + tensor_c_row(i), other = n * 8 + tensor_c_column(i);
      int q = turned ? other : own, k = turned ? own : other;
      gradient(&scores[n][i], &grads[n][i], a, rows, bits, at, masked, q, k);
    }
}

template <int W> static __device__ inline void zero(float (&sums)[W / 8][4]) {
#pragma unroll
  for (int n = 0; n < W / 8; n++)
    for (int i = 0; i < 4; i++) sums[n][i] = 0;
}

template <tsr_cuda_type TYPE, int W>
static __global__ void __launch_bounds__(THREADS)
    attention_tensor_dq(tsr_attention a, const uint64_t *key, backward_arrays x) {
  typedef tensor_backward<W> S;
  const int N = S::OTHERS;
  TSR_SHARED(uint16_t, shared);
  backward_parts p = backward_layout<W>(shared, a);
  attention_item item = attention_item_of_queries(a.B * a.H, TILE);
  attention_head at = attention_head_at(a, item.line / a.H, item.line % a.H);
  int64_t first = item.first, start = at.q_start + first * at.q_stride;
  int64_t end = attention_keys(a, first + TILE);
  int row = (int)threadIdx.x / TENSOR_LANES * 16, turn = 0;
  float sums[W / 8][4], scores[N / 8][4], grads[N / 8][4];
  zero<W>(sums);
  tensor_load<W, TILE, THREADS>(p.own, x.q + start, at.q_stride, a.T - first, a.D);
  tensor_load<W, TILE, THREADS>(p.own + S::OWN_SIZE, x.dout + start, at.q_stride, a.T - first, a.D);
  tensor_load<W, N, THREADS>(p.others, x.k + at.k_start, at.k_stride, a.T, a.D);
  tensor_load<W, N, THREADS>(p.others + S::OTHER_SIZE, x.v + at.k_start, at.k_stride, a.T, a.D);
  attention_rows(p.rows, a, at, x.stats, x.delta, first, TILE);
  for (int64_t t = 0; t < end; t += N, turn ^= 1) {
    const uint16_t *tile = p.others + turn * 2 * S::OTHER_SIZE;
    uint16_t *next = p.others + (turn ^ 1) * 2 * S::OTHER_SIZE;
    int64_t from = at.k_start + (t + N) * at.k_stride;
    tensor_fetch_wait();
    __syncthreads();
    if (t + N < end) {
      tensor_load<W, N, THREADS>(next, x.k + from, at.k_stride, a.T - t - N, a.D);
      tensor_load<W, N, THREADS>(next + S::OTHER_SIZE, x.v + from, at.k_stride, a.T - t - N, a.D);
    }
    if (p.bits) {
      attention_mask(p.bits, a, *key, at, first, t, TILE, N);
      __syncthreads();
    }
    dot<TYPE, W, N>(scores, p.own, row, tile);
    dot<TYPE, W, N>(grads, p.own + S::OWN_SIZE, row, tile + S::OTHER_SIZE);
    tile_place place = {first, t, TILE, N};
    gradients<N, false>(scores, grads, a, p.rows, p.bits, place, row);
    add<TYPE, W, N>(sums, grads, tile);
  }
  tensor_store<TYPE, W>(
      x.dq + start + row * at.q_stride, at.q_stride, a.T - first - row, a.D,
      p.own + row * S::STRIDE, sums, a.scale, a.scale);
}

/* A step of the pass of dk and dv: a tile of queries of one of the group's heads. */
typedef struct {
  attention_head at;
  int64_t query;
} query_step;

static __device__ inline query_step
query_step_at(const tsr_attention &a, int64_t b, int64_t h, int64_t begin, int size, int64_t n) {
  int64_t tiles = (a.T - begin + size - 1) / size;
  query_step step;
  step.at = attention_head_at(a, b, h + n / tiles);
  step.query = begin + n % tiles * size;
  return step;
}

template <int W>
static __device__ inline void step_load(
    const backward_parts &p, int turn, const tsr_attention &a, const backward_arrays &x,
    query_step s) {
  const int N = tensor_backward<W>::OTHERS, SIZE = tensor_backward<W>::OTHER_SIZE;
  uint16_t *to = p.others + turn * 2 * SIZE;
  int64_t start = s.at.q_start + s.query * s.at.q_stride, left = a.T - s.query;
  tensor_load<W, N, THREADS>(to, x.q + start, s.at.q_stride, left, a.D);
  tensor_load<W, N, THREADS>(to + SIZE, x.dout + start, s.at.q_stride, left, a.D);
  attention_rows(p.rows + turn * tensor_backward<W>::ROWS, a, s.at, x.stats, x.delta, s.query, N);
}

/* The heads of a group are added in their order. */
template <tsr_cuda_type TYPE, int W>
static __global__ void __launch_bounds__(THREADS)
    attention_tensor_dkv(tsr_attention a, const uint64_t *key, backward_arrays x) {
  typedef tensor_backward<W> S;
  const int N = S::OTHERS;
  TSR_SHARED(uint16_t, shared);
  backward_parts p = backward_layout<W>(shared, a);
  attention_item item = attention_item_of_keys(a.B * a.G, TILE);
  int64_t heads = a.H / a.G, b = item.line / a.G, h = item.line % a.G * heads;
  int64_t first = item.first, begin = attention_queries(a, first, N);
  int64_t steps = heads * ((a.T - begin + N - 1) / N);
  query_step step = query_step_at(a, b, h, begin, N, 0);
  int64_t from = step.at.k_start + first * step.at.k_stride, stride = step.at.k_stride;
  int row = (int)threadIdx.x / TENSOR_LANES * 16;
  float dk[W / 8][4], dv[W / 8][4], scores[N / 8][4], grads[N / 8][4];
  zero<W>(dk);
  zero<W>(dv);
  tensor_load<W, TILE, THREADS>(p.own, x.k + from, stride, a.T - first, a.D);
  tensor_load<W, TILE, THREADS>(p.own + S::OWN_SIZE, x.v + from, stride, a.T - first, a.D);
  step_load<W>(p, 0, a, x, step);
  for (int64_t n = 0; n < steps; n++) {
    int turn = (int)(n % 2);
    const uint16_t *tile = p.others + turn * 2 * S::OTHER_SIZE;
    step = query_step_at(a, b, h, begin, N, n);
    tensor_fetch_wait();
    __syncthreads();
    if (n + 1 < steps) step_load<W>(p, turn ^ 1, a, x, query_step_at(a, b, h, begin, N, n + 1));
    if (p.bits) {
      attention_mask(p.bits, a, *key, step.at, step.query, first, N, TILE);
      __syncthreads();
    }
    dot<TYPE, W, N>(scores, p.own, row, tile);
    dot<TYPE, W, N>(grads, p.own + S::OWN_SIZE, row, tile + S::OTHER_SIZE);
    tile_place place = {step.query, first, N, TILE};
    gradients<N, true>(scores, grads, a, p.rows + turn * S::ROWS, p.bits, place, row);
    add<TYPE, W, N>(dv, scores, tile + S::OTHER_SIZE);
    add<TYPE, W, N>(dk, grads, tile);
  }
  int64_t to = from + row * stride, left = a.T - first - row;
  tensor_store<TYPE, W>(
      x.dk + to, stride, left, a.D, p.own + row * S::STRIDE, dk, a.scale, a.scale);
  tensor_store<TYPE, W>(
      x.dv + to, stride, left, a.D, p.own + S::OWN_SIZE + row * S::STRIDE, dv, 1, 1);
}

template <tsr_cuda_type TYPE, int W>
static void
backward(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays x) {
  size_t bytes = tensor_backward<W>::BYTES;
  TSR_ALLOW_SHARED((attention_tensor_dkv<TYPE, W>), bytes);
  TSR_ALLOW_SHARED((attention_tensor_dq<TYPE, W>), bytes);
  TSR_LAUNCH(
      (attention_tensor_dkv<TYPE, W>), attention_blocks(a->T, a->B * a->G, TILE), THREADS, bytes, s,
      *a, key, x);
  TSR_LAUNCH(
      (attention_tensor_dq<TYPE, W>), attention_blocks(a->T, a->B * a->H, TILE), THREADS, bytes, s,
      *a, key, x);
}

template <tsr_cuda_type TYPE>
static void
backward_width(tsr_cuda_stream s, const tsr_attention *a, const uint64_t *key, backward_arrays x) {
  if (a->D <= 64) backward<TYPE, 64>(s, a, key, x);
  else if (a->D <= 80) backward<TYPE, 80>(s, a, key, x);
  else if (a->D <= 96) backward<TYPE, 96>(s, a, key, x);
  else backward<TYPE, 128>(s, a, key, x);
}

void tsr_cuda_attention_tensor_backward(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention *a, const uint64_t *key, void *dq,
    void *dk, void *dv, const void *dout, const void *q, const void *k, const void *v,
    const float *stats, const float *delta) {
  backward_arrays x = {
      (uint16_t *)dq,
      (uint16_t *)dk,
      (uint16_t *)dv,
      (const uint16_t *)dout,
      (const uint16_t *)q,
      (const uint16_t *)k,
      (const uint16_t *)v,
      stats,
      delta};
  if (type == TSR_CUDA_BF16) backward_width<TSR_CUDA_BF16>(s, a, key, x);
  else backward_width<TSR_CUDA_F16>(s, a, key, x);
}
