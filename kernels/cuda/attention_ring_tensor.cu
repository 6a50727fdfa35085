// SPDX-License-Identifier: Apache-2.0
/* Attention over units with tensor cores: the passes of attention_tensor_passes.cuh as the leaves
 * of attention_ring.cuh's walk. */
#include "kernels/cuda/attention_ring.cuh"
#include "kernels/cuda/attention_tensor_passes.cuh"

/* A lane's column of a part: its c-th of every row. Of the widest heads it is computed wherever it
 * is needed: all columns, kept beside the sums, would be spilled. */
template <int W> static __device__ inline int tensor_column_in(int c, int64_t D) {
  int first = tensor_c_column(0);
  int d = c / 2 * 8 + (W == TENSOR_WIDTH_MAX ? tensor_here(first) : first) + c % 2;
  return d < D ? d : -1;
}

/* A run of the units at hand. */
static __device__ inline tensor_keys
ring_keys(const ring_shape &r, const ring_arrays<uint16_t> &x, const ring_target &t, int64_t run) {
  int64_t row = run * r.unit.T;
  tensor_keys keys = {
      x.k + t.at.k_start + row * t.at.k_stride, x.v + t.at.v_start + row * t.at.v_stride,
      t.at.k_stride, t.at.v_stride};
  return keys;
}

template <tsr_cuda_type TYPE, int W, int M> struct ring_tensor_out {
  typedef uint16_t N;
  typedef tensor_forward<W, M> S;
  static constexpr tsr_attention_sum SUM = TSR_ATTENTION_OUT;
  static constexpr int THREADS = TENSOR_THREADS, OWN = S::QUERIES, ROWS = 2 * M;
  static constexpr int COLUMNS = S::V / 4;
  static attention_tile tile(void) { return tensor_tile(SUM, W); }
  tensor_forward_parts p;
  forward_rows<W, M> rows;

  __device__ inline void begin(void) { rows_begin(&rows); }
  __device__ inline void
  open(float *shared, const ring_shape &r, const ring_arrays<N> &x, const ring_target &t) {
    int64_t start = t.at.q_start + t.position * t.at.q_stride;
    p = tensor_forward_layout<W, M>((uint16_t *)shared);
    begin();
    tensor_load<W, S::QUERIES, TENSOR_THREADS>(
        p.queries, x.q + start, t.at.q_stride, r.unit.T - t.first, r.a.D);
  }
  /* The maximum loses its factor log2(e). */
  __device__ inline void leaf(
      const ring_shape &r, const uint64_t *key, const ring_arrays<N> &x, const ring_target &t,
      int64_t run, int64_t unit) {
    begin();
    tensor_forward_add<TYPE, W, M, TENSOR_DROPOUT>(
        &rows, p, ring_pair(r, t.unit, unit), ring_drop(r, key, t.at, t.unit, unit), t.first,
        ring_keys(r, x, t, run));
    rows_end(&rows);
#pragma unroll
    for (int m = 0; m < M; m++)
      for (int i = 0; i < 2; i++) rows.max[m][i] *= LOG_2;
  }
  __device__ inline int row(int i) const {
    return tensor_row(M) + i / 2 * 16 + tensor_c_row(i % 2 * 2);
  }
  __device__ inline int column(int c, const tsr_attention &a) const {
    return tensor_column_in<W>(c, a.Dv);
  }
  __device__ inline bool leads() const { return tensor_lane() % 4 == 0; }
  __device__ inline float &at(int i, int c) { return rows.out[i / 2][c / 2][i % 2 * 2 + c % 2]; }
  __device__ inline float &max(int i) { return rows.max[i / 2][i % 2]; }
  __device__ inline float &sum(int i) { return rows.sum[i / 2][i % 2]; }
};

template <tsr_cuda_type TYPE, int W, int M> struct ring_tensor_dq {
  typedef uint16_t N;
  typedef tensor_backward<W, M> S;
  static constexpr tsr_attention_sum SUM = TSR_ATTENTION_DQ;
  static constexpr int THREADS = TENSOR_THREADS, OWN = S::OWN, ROWS = 2 * M, COLUMNS = W / 4;
  static attention_tile tile(void) { return tensor_tile(SUM, W); }
  tensor_backward_parts p;
  float dq[M][W / 8][4];

  __device__ inline void
  open(float *shared, const ring_shape &r, const ring_arrays<N> &x, const ring_target &t) {
    int64_t start = t.at.q_start + t.position * t.at.q_stride, left = r.unit.T - t.first;
    int64_t dout = t.at.o_start + t.position * t.at.o_stride;
    p = tensor_backward_layout<W, M>((uint16_t *)shared);
    zero<W, M>(dq);
    tensor_load<W, OWN, THREADS>(p.own, x.q + start, t.at.q_stride, left, r.a.D);
    tensor_load<S::V, OWN, THREADS>(
        p.own + S::OWN_SIZE, x.dout + dout, t.at.o_stride, left, r.a.Dv);
    attention_statistics rows = ring_statistics(r, x.rows, t.at, t.run);
    query_row_write(p.rows, query_row_read(rows, t.first, r.unit.T, OWN), OWN);
  }
  __device__ inline void leaf(
      const ring_shape &r, const uint64_t *key, const ring_arrays<N> &x, const ring_target &t,
      int64_t run, int64_t unit) {
    zero<W, M>(dq);
    tensor_dq_add<TYPE, W, M, TENSOR_DROPOUT>(
        dq, p, ring_pair(r, t.unit, unit), ring_drop(r, key, t.at, t.unit, unit), t.first,
        ring_keys(r, x, t, run));
  }
  __device__ inline int row(int i) const {
    return tensor_row(M) + i / 2 * 16 + tensor_c_row(i % 2 * 2);
  }
  __device__ inline int column(int c, const tsr_attention &a) const {
    return tensor_column_in<W>(c, a.D);
  }
  __device__ inline float &at(int i, int c) { return dq[i / 2][c / 2][i % 2 * 2 + c % 2]; }
};

/* Rows of dk and dv lie side by side; a pass of one of them leaves the other's columns. */
template <tsr_cuda_type TYPE, int W, int M, tensor_sums SUMS> struct ring_tensor_dkv {
  typedef uint16_t N;
  typedef tensor_backward<W, M> S;
  static constexpr tsr_attention_sum SUM = TSR_ATTENTION_DKV;
  static constexpr int THREADS = TENSOR_THREADS, OWN = S::OWN, ROWS = 2 * M;
  static constexpr int OF_DK = SUMS & TENSOR_DK ? W / 4 : 0;
  static constexpr int COLUMNS = OF_DK + (SUMS & TENSOR_DV ? S::V / 4 : 0);
  static attention_tile tile(void) { return tensor_tile(SUM, W); }
  tensor_backward_parts p;
  float dk[M][W / 8][4], dv[M][S::V / 8][4];

  __device__ inline void
  open(float *shared, const ring_shape &r, const ring_arrays<N> &x, const ring_target &t) {
    int64_t from = t.at.k_start + t.position * t.at.k_stride, left = r.unit.T - t.first;
    int64_t values = t.at.v_start + t.position * t.at.v_stride;
    p = tensor_backward_layout<W, M>((uint16_t *)shared);
    zero<W, M>(dk);
    zero<S::V, M>(dv);
    tensor_load<W, OWN, THREADS>(p.own, x.k + from, t.at.k_stride, left, r.a.D);
    if (SUMS & TENSOR_DK)
      tensor_load<S::V, OWN, THREADS>(
          p.own + S::OWN_SIZE, x.v + values, t.at.v_stride, left, r.a.Dv);
  }
  __device__ inline void leaf(
      const ring_shape &r, const uint64_t *key, const ring_arrays<N> &x, const ring_target &t,
      int64_t run, int64_t unit) {
    int64_t row = run * r.unit.T;
    tensor_queries queries = {
        x.q + t.at.q_start + row * t.at.q_stride,
        x.dout + t.at.o_start + row * t.at.o_stride,
        t.at.q_stride,
        t.at.o_stride,
        r.a.H / r.a.G,
        r.a.T,
        ring_statistics(r, x.rows, t.at, run),
        ring_drop(r, key, t.at, unit, t.unit)};
    zero<W, M>(dk);
    zero<S::V, M>(dv);
    tensor_dkv_add<TYPE, W, M, TENSOR_DROPOUT, SUMS>(
        dk, dv, p, ring_pair(r, unit, t.unit), queries, t.first);
  }
  __device__ inline int row(int i) const {
    return tensor_row(M) + i / 2 * 16 + tensor_c_row(i % 2 * 2);
  }
  __device__ inline int column(int c, const tsr_attention &a) const {
    if (c < OF_DK) return tensor_column_in<W>(c, a.D);
    int d = tensor_column_in<W>(c - OF_DK, a.Dv);
    return d < 0 ? d : (int)a.D + d;
  }
  __device__ inline float &at(int i, int c) {
    int k = i % 2 * 2 + c % 2;
    return c < OF_DK ? dk[i / 2][c / 2][k] : dv[i / 2][(c - OF_DK) / 2][k];
  }
};

template <tsr_cuda_type TYPE, int W>
static void step(
    tsr_cuda_stream s, const tsr_attention_ring *r, tsr_attention_sum sum, const uint64_t *key,
    float *acc, void *scratch, const ring_arrays<uint16_t> &x) {
  constexpr int F = tensor_forward_runs(W), B = tensor_backward_runs(W);
  if (sum == TSR_ATTENTION_OUT) ring_step<ring_tensor_out<TYPE, W, F>>(s, r, key, acc, scratch, x);
  else if (sum == TSR_ATTENTION_DQ)
    ring_step<ring_tensor_dq<TYPE, W, B>>(s, r, key, acc, scratch, x);
  else if constexpr (tensor_dkv_passes(W) == 1)
    ring_step<ring_tensor_dkv<TYPE, W, B, TENSOR_DKV>>(s, r, key, acc, scratch, x);
  else {
    ring_step<ring_tensor_dkv<TYPE, W, B, TENSOR_DK>>(s, r, key, acc, scratch, x);
    ring_step<ring_tensor_dkv<TYPE, W, B, TENSOR_DV>>(s, r, key, acc, scratch, x);
  }
}

template <tsr_cuda_type TYPE>
static void step_width(
    tsr_cuda_stream s, const tsr_attention_ring *r, tsr_attention_sum sum, const uint64_t *key,
    float *acc, void *scratch, const ring_arrays<uint16_t> &x) {
  int width = tensor_width(&r->a);
  if (width == 64) step<TYPE, 64>(s, r, sum, key, acc, scratch, x);
  else if (width == 80) step<TYPE, 80>(s, r, sum, key, acc, scratch, x);
  else if (width == 96) step<TYPE, 96>(s, r, sum, key, acc, scratch, x);
  else if (width == 128) step<TYPE, 128>(s, r, sum, key, acc, scratch, x);
  else step<TYPE, TENSOR_WIDTH_MAX>(s, r, sum, key, acc, scratch, x);
}

void tsr_cuda_attention_ring_tensor(
    tsr_cuda_stream s, tsr_cuda_type type, const tsr_attention_ring *r, tsr_attention_sum sum,
    const uint64_t *key, float *acc, void *scratch, const ring_arrays<uint16_t> &x) {
  if (type == TSR_CUDA_BF16) step_width<TSR_CUDA_BF16>(s, r, sum, key, acc, scratch, x);
  else step_width<TSR_CUDA_F16>(s, r, sum, key, acc, scratch, x);
}
