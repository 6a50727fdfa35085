// SPDX-License-Identifier: Apache-2.0
#include "oracle_cases.h"
#include "tests/check.h"

const oracle_recipe oracle_recipes[ORACLE_RECIPES] = {
    {"units 1", 1, 0, 1, 1, 1},
    {"batch units 4, tp 2", 4, 0, 2, 1, 4},
    {"batch units 4, sequence 4, tp 2", 4, 4, 2, 1, 4},
    {"batch units 4, tp 2, 2 microbatches", 4, 0, 2, 2, 1},
    {"batch units 4, sequence 4, tp 2, 2 microbatches", 4, 4, 2, 2, 2},
};

#define X3 "x 4,4,6; " /* samples, positions, features */
/* the same, of tokens: then sequence units split the positions */
#define TOKENS "t 4,4 tokens; "
#define TABLE "e 11,6; "
#define ROWS "x: embedding(t, e)\n"
#define TEXT "t 4,4 tokens; targets 4,4 tokens"

const oracle_case oracle_cases[] = {
    /* ---- multilayer perceptrons ---- */
    {"mlp", "x 4,7; goal 4,3", "w1 8,7 0; b1 8 0; w2 3,8 1; b2 3",
     "h: linear(x, w1, b1); a: gelu(h); y: linear(a, w2, b2); loss: mse(y, goal)"},
    {"mlp_functions", "x 4,7; goal 4,5", "w1 9,7; w2 9,7; w3 5,9",
     "a: linear(x, w1); b: linear(x, w2); s: sigmoid(a); e: gelu_erf(b); d: sub(s, e)\n"
     "m: mul(d, b); c: scale(m, factor: -1.3); n: tanh(c); y: linear(n, w3); loss: mse(y, "
     "goal)"},
    {"mlp_classes", "x 4,7; targets 4 tokens", "w1 8,7 0; w2 16,8 1",
     "h: linear(x, w1); a: silu(h); y: linear(a, w2); loss: cross_entropy(y, targets, valid: "
     "13)"},
    {"mlp_positions", X3 "goal 4,4,3", "w1 8,6 0; b1 8 0; w2 3,8 1; b2 3",
     "h: linear(x, w1, b1); a: relu(h); y: linear(a, w2, b2); loss: mse(y, goal)"},
    {"loss_reduced", X3 "goal 4,4,3", "w 3,6",
     "y: linear(x, w); part: mse(y, goal); loss: all_reduce(part, axis: dp)"},
    /* ---- a parameter in two places ---- */
    {"weight_twice", X3 "goal 4,4,6", "w 6,6; b 6",
     "h: linear(x, w, b); a: tanh(h); y: linear(a, w, b); loss: mse(y, goal)"},
    {"weight_and_transpose", "x 4,7; goal 4,7", "w 9,7",
     "h: linear(x, w); a: silu(h); v: transpose(w, dim0: 0, dim1: 1); y: linear(a, v)\n"
     "loss: mse(y, goal)"},
    {"weight_scaled", "x 4,7; goal 4,9", "w 9,9; u 9,7",
     "h: linear(x, u); v: scale(w, factor: 0.3); f: linear(h, w); a: tanh(f); y: linear(a, v)\n"
     "loss: mse(y, goal)"},
    {"weight_product", TOKENS "goal 4,4,5", TABLE "a 5,3; b 3,6",
     ROWS "w: matmul(a, b); y: linear(x, w); loss: mse(y, goal)"},
    {"weight_and_square", TOKENS "goal 4,4,6", TABLE "w 6,6",
     ROWS "h: linear(x, w); a: tanh(h); v: matmul(w, w); y: linear(a, v); loss: mse(y, goal)"},
    {"head_tied", TEXT, "wte 16,6 0; n 6",
     "e: embedding(t, wte); h: rmsnorm(e, n); y: linear(h, wte)\n"
     "loss: cross_entropy(y, targets, valid: 11)"},
    {"head_tied_padding", TEXT, "wte 16,6 0; n 6",
     "e: embedding(t, wte, padding: 5); h: rmsnorm(e, n); y: linear(h, wte)\n"
     "loss: cross_entropy(y, targets, valid: 11)"},
    {"table_padding", TOKENS "goal 4,4,6", TABLE "w 6,6",
     "x: embedding(t, e, padding: 5); y: linear(x, w); loss: mse(y, goal)"},
    {"norm_twice", TOKENS "goal 4,4,6", TABLE "n 6; b 6; w 6,6",
     ROWS "h: layernorm(x, n, b); a: linear(h, w); g: gelu(a); y: layernorm(g, n, b)\n"
          "loss: mse(y, goal)"},
    /* ---- text ---- */
    {"gpt", TEXT,
     "wte 16,8 0; wpe 4,8; n 8; c 8; wq 8,8 0; wk 8,8 0; wv 8,8 0; wo 8,8 1; bo 8; up 12,8 0\n"
     "upb 12 0; down 8,12 1; nf 8; cf 8",
     "e: embedding(t, wte); x: add(e, wpe); d: dropout(x, p: 0.2); h: layernorm(d, n, c)\n"
     "q: linear(h, wq); k: linear(h, wk); v: linear(h, wv)\n"
     "a: attention(q, k, v, head_dim: 4, dropout: 0.1); o: linear(a, wo, bo); r: add(d, o)\n"
     "g: layernorm(r, n, c); u: linear(g, up, upb); w: gelu(u); z: linear(w, down)\n"
     "s: add(r, z); f: layernorm(s, nf, cf); y: linear(f, wte)\n"
     "loss: cross_entropy(y, targets, valid: 11)"},
    {"llama", TEXT,
     "wte 16,6 1; n1 6; wq 16,6 0; wk 8,6 0; wv 8,6 0; wo 6,16 1; n2 6; gate 10,6 0; up 10,6 "
     "0\n"
     "down 6,10 1; nf 6; head 16,6 0",
     "x: embedding(t, wte); h: rmsnorm(x, n1); q: linear(h, wq); k: linear(h, wk)\n"
     "v: linear(h, wv); qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4)\n"
     "a: attention(qr, kr, v, head_dim: 4, window: 3); o: linear(a, wo); r: add(x, o)\n"
     "g: rmsnorm(r, n2)\n"
     "s: linear(g, gate); u: linear(g, up); m: swiglu(s, u); d: linear(m, down); z: add(r, d)\n"
     "f: rmsnorm(z, nf); y: linear(f, head); loss: cross_entropy(y, targets, valid: 11)"},
    {"head_norms", TOKENS "goal 4,4,6",
     TABLE "wq 16,6 0; wk 8,6 0; wv 8,6 0; qn 4; kn 4; wo 6,16 1",
     ROWS "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv); q4: reshape(q, shape: [4,4,4,4])\n"
          "k4: reshape(k, shape: [4,4,2,4]); qs: rmsnorm(q4, qn); ks: rmsnorm(k4, kn)\n"
          "q3: reshape(qs, shape: [4,4,16]); k3: reshape(ks, shape: [4,4,8])\n"
          "qr: rope(q3, head_dim: 4, theta: 100); kr: rope(k3, head_dim: 4, theta: 100)\n"
          "a: attention(qr, kr, v, head_dim: 4); y: linear(a, wo); loss: mse(y, goal)"},
    {"attention_one_key_head", TOKENS "goal 4,4,12", TABLE "wq 12,6; wk 3,6; wv 3,6",
     ROWS "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
          "y: attention(q, k, v, head_dim: 3, causal: 0, scale: 0.7); loss: mse(y, goal)"},
    {"attention_before_split", TOKENS "goal 4,4,6", TABLE "wq 12,6; w 6,12 1",
     ROWS "q: linear(x, wq); a: attention(q, x, x, head_dim: 2); y: linear(a, w)\n"
          "loss: mse(y, goal)"},
    {"attention_sinks", TOKENS "goal 4,4,12",
     TABLE "wq 16,6 0; wk 8,6 0; wv 8,6 0; s 4 0; wo 12,16 1",
     ROWS "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
          "a: attention(q, k, v, s, head_dim: 4, window: 3, dropout: 0.1); y: linear(a, wo)\n"
          "loss: mse(y, goal)"},
    {"attention_soft_cap", TOKENS "goal 4,4,12",
     TABLE "n 6; wq 16,6 0; wk 8,6 0; wv 8,6 0; wo 12,16 1",
     ROWS
     "h: rmsnorm(x, n, zero_centered: 1); q: linear(h, wq); k: linear(h, wk); v: linear(h, wv)\n"
     "qr: rope(q, head_dim: 4, linear_factor: 2); kr: rope(k, head_dim: 4, linear_factor: 2)\n"
     "a: attention(qr, kr, v, head_dim: 4, scale: 2, window: 3, dropout: 0.1, soft_cap: 0.5)\n"
     "y: linear(a, wo); loss: mse(y, goal)"},
    {"attention_fused", TOKENS "goal 4,4,6", TABLE "w 18,6; wo 6,6",
     ROWS "f: linear(x, w); s: split(f, sections: 3); a: attention(s.0, s.1, s.2, head_dim: 2)\n"
          "y: linear(a, wo); loss: mse(y, goal)"},
    /* ---- products of two activations ---- */
    {"scores_by_hand", TOKENS "goal 4,4,5", TABLE "wq 7,6; wk 7,6; wv 5,6",
     ROWS "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv); s: matmul(q, k, transpose_b: 1)\n"
          "p: softmax(s); y: matmul(p, v); loss: mse(y, goal)"},
    {"heads_by_hand", TOKENS "goal 4,4,6", TABLE "wq 6,6; wk 6,6; wv 6,6",
     ROWS "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv); q4: reshape(q, shape: [4,4,2,3])\n"
          "k4: reshape(k, shape: [4,4,2,3]); v4: reshape(v, shape: [4,4,2,3])\n"
          "qh: transpose(q4, dim0: 1, dim1: 2); kh: transpose(k4, dim0: 1, dim1: 2)\n"
          "vh: transpose(v4, dim0: 1, dim1: 2); s: matmul(qh, kh, transpose_b: 1); p: softmax(s)\n"
          "o: matmul(p, vh); oh: transpose(o, dim0: 1, dim1: 2); y: reshape(oh, shape: [4,4,6])\n"
          "loss: mse(y, goal)"},
    {"gram_of_features", TOKENS "goal 4,5,7", TABLE "u 5,6; v 7,6",
     ROWS "a: linear(x, u); b: linear(x, v); y: matmul(a, b, transpose_a: 1); loss: mse(y, goal)"},
    {"gram_of_positions", TOKENS "goal 4,4,4", TABLE "u 5,6; v 5,6",
     ROWS "a: linear(x, u); b: linear(x, v); y: matmul(a, b, transpose_b: 1); loss: mse(y, goal)"},
    {"product_of_samples", "x 4,6; goal 4,4", "u 5,6; v 5,6",
     "a: linear(x, u); b: linear(x, v); y: matmul(a, b, transpose_b: 1); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"product_over_samples", "x 4,6; goal 8,4", "u 8,6; v 4,6",
     "a: linear(x, u); b: linear(x, v); y: matmul(a, b, transpose_a: 1); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"product_over_rows", TOKENS "goal 8,4", TABLE "u 8,6; v 4,6",
     ROWS "a: linear(x, u); b: linear(x, v); f: reshape(a, shape: [16,8]); g: reshape(b, shape: "
          "[16,4])\n"
          "y: matmul(f, g, transpose_a: 1); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"product_over_odd", "x 4,6; z 7,5; goal 4,5", "u 7,6; v 5,5",
     "a: linear(x, u); b: linear(z, v); y: matmul(a, b); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"product_with_weight", "x 4,6; goal 4,5", "u 7,6; w 7,5",
     "a: linear(x, u); y: matmul(a, w); loss: mse(y, goal)"},
    {"product_over_three", TOKENS "z 4,3,6; goal 4,4,6", TABLE "u 3,6; v 6,6",
     ROWS "a: linear(x, u); b: linear(z, v); y: matmul(a, b); loss: mse(y, goal)"},
    {"product_of_sum_and_odd", "x 4,3,6; goal 4,5,5", "u 5,6",
     "a: linear(x, u); t: tanh(a); y: matmul(t, a, transpose_a: 1); loss: mse(y, goal)"},
    {"scores_long", "t 4,24 tokens; goal 4,24,5", TABLE "wq 7,6; wk 7,6; wv 5,6",
     ROWS "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv); s: matmul(q, k, transpose_b: 1)\n"
          "p: softmax(s); y: matmul(p, v); loss: mse(y, goal)"},
    {"product_of_transposed", "x 4,6; goal 5,7", "u 5,6; v 7,6",
     "a: linear(x, u); b: linear(x, v); f: transpose(a, dim0: 0, dim1: 1); y: matmul(f, b)\n"
     "loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"linear_by_activation", TOKENS "goal 4,4,4", TABLE "u 6,6",
     ROWS "h: linear(x, u); f: slice(h, dim: 0, begin: 1, end: 2); s: reshape(f, shape: [4,6])\n"
          "y: linear(h, s); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"loss_of_two", TOKENS "goal 4,4,5", TABLE "u 5,6; v 5,6",
     ROWS "a: linear(x, u); b: linear(x, v); c: tanh(b); d: sub(c, goal); loss: mse(a, d)"},
    {"table_of_product", TEXT, "wte 16,3; p 6,3; n 6; head 16,6",
     "table: linear(wte, p); x: embedding(t, table); m: scale(n, factor: 0.7); h: rmsnorm(x, m)\n"
     "y: linear(h, head); loss: cross_entropy(y, targets, valid: 11)"},
    {"scores_split", TOKENS "goal 4,4,4", TABLE "wq 8,6 0; wk 8,6 0",
     ROWS
     "q: linear(x, wq); k: linear(x, wk); y: matmul(q, k, transpose_b: 1); loss: mse(y, goal)"},
    {"gram_split", TOKENS "goal 4,8,4", TABLE "u 8,6 0; v 4,6 0",
     ROWS "a: linear(x, u); b: linear(x, v); y: matmul(a, b, transpose_a: 1); loss: mse(y, goal)"},
    {"norm_of_split", TOKENS "goal 4,4,5", TABLE "u 8,6 0; n 8; c 8; w 8,8 0; v 5,8 1",
     ROWS
     "a: linear(x, u); h: layernorm(a, n, c); b: linear(h, w); p: softmax(b); y: linear(p, v)\n"
     "loss: mse(y, goal)"},
    /* ---- rows flattened ---- */
    {"flat_linear", X3 "goal 16,5", "w 5,6; b 5",
     "f: reshape(x, shape: [16,6]); y: linear(f, w, b); loss: mse(y, goal)"},
    {"flat_and_back", TOKENS "goal 4,4,5", TABLE "u 7,6; w 5,7; b 5",
     ROWS "h: linear(x, u); f: reshape(h, shape: [16,7]); a: gelu(f); z: linear(a, w, b)\n"
          "y: reshape(z, shape: [4,4,5]); loss: mse(y, goal)"},
    {"flat_norm", TOKENS "goal 4,4,6", TABLE "n 6; b 6; w 6,6",
     ROWS "f: reshape(x, shape: [16,6]); h: layernorm(f, n, b); a: linear(h, w)\n"
          "y: reshape(a, shape: [4,4,6]); loss: mse(y, goal)"},
    {"flat_logits", "t 4,4 tokens; targets 16 tokens", "wte 16,6; w 16,6",
     "e: embedding(t, wte); f: reshape(e, shape: [16,6]); y: linear(f, w)\n"
     "loss: cross_entropy(y, targets, valid: 11)"},
    {"flat_sample", TOKENS "goal 4,5", TABLE "w 5,24; u 6,6",
     ROWS "h: linear(x, u); f: reshape(h, shape: [4,24]); y: linear(f, w); loss: mse(y, goal)"},
    {"samples_in_pairs", TOKENS "goal 2,5", TABLE "w 5,48; u 6,6",
     ROWS "h: linear(x, u); f: reshape(h, shape: [2,48]); y: linear(f, w); loss: mse(y, goal)"},
    {"positions_in_pairs", TOKENS "goal 4,2,5", TABLE "w 5,12; u 6,6",
     ROWS "h: linear(x, u); f: reshape(h, shape: [4,2,12]); y: linear(f, w); loss: mse(y, goal)"},
    {"head_rows", TOKENS "goal 4,8,5", TABLE "u 6,6; w 5,3; b 5",
     ROWS "h: linear(x, u); f: reshape(h, shape: [4,8,3]); y: linear(f, w, b); loss: mse(y, goal)"},
    {"flat_linear_of_tokens", TOKENS "goal 16,5", TABLE "w 5,6; b 5",
     ROWS "f: reshape(x, shape: [16,6]); y: linear(f, w, b); loss: mse(y, goal)"},
    {"rows_in_pairs", TOKENS "goal 8,5", TABLE "w 5,12; u 6,6",
     ROWS "h: linear(x, u); f: reshape(h, shape: [8,12]); y: linear(f, w); loss: mse(y, goal)"},
    {"rows_halved", TOKENS "goal 32,5", TABLE "w 5,3; b 5; u 6,6",
     ROWS "h: linear(x, u); f: reshape(h, shape: [32,3]); y: linear(f, w, b); loss: mse(y, goal)"},
    {"features_first", TOKENS "goal 6,5", TABLE "w 5,16; b 5; u 6,6",
     ROWS "h: linear(x, u); f: reshape(h, shape: [16,6]); r: transpose(f, dim0: 0, dim1: 1)\n"
          "y: linear(r, w, b); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    /* ---- rows transposed ---- */
    {"transposed_linear", X3 "goal 4,4,5", "w 5,6; b 5",
     "f: transpose(x, dim0: 0, dim1: 1); y: linear(f, w, b); g: transpose(goal, dim0: 0, dim1: 1)\n"
     "loss: mse(y, g)"},
    {"transposed_and_back", TOKENS "goal 4,4,5", TABLE "w 5,6; b 5",
     ROWS "f: transpose(x, dim0: 0, dim1: 1); h: linear(f, w, b); a: gelu(h)\n"
          "y: transpose(a, dim0: 0, dim1: 1); loss: mse(y, goal)"},
    {"transposed_norm", TOKENS "goal 4,4,6", TABLE "n 6; w 6,6",
     ROWS "h: linear(x, w); f: transpose(h, dim0: 0, dim1: 1); y: rmsnorm(f, n)\n"
          "g: transpose(goal, dim0: 0, dim1: 1); loss: mse(y, g)"},
    {"samples_crossed", TOKENS "goal 4,4,6", TABLE "n 6; w 6,6",
     ROWS "h: linear(x, w); f: transpose(h, dim0: 0, dim1: 1); y: rmsnorm(f, n); loss: mse(y, "
          "goal)",
     .refused = ORACLE_TWICE},
    {"positions_mixed", TOKENS "goal 4,6,5", TABLE "w 5,4; b 5",
     ROWS "f: transpose(x, dim0: 1, dim1: 2); y: linear(f, w, b); loss: mse(y, goal)"},
    {"mixer", TOKENS "goal 4,4,6",
     TABLE "n1 6; c1 6; p1 5,4; p2 4,5; n2 6; c2 6; up 10,6 0; down 6,10 1",
     ROWS "h: layernorm(x, n1, c1); f: transpose(h, dim0: 1, dim1: 2); u: linear(f, p1); g: "
          "gelu(u)\n"
          "d: linear(g, p2); w: transpose(d, dim0: 1, dim1: 2); r: add(x, w); k: layernorm(r, "
          "n2, c2)\n"
          "m: linear(k, up); a: gelu(m); o: linear(a, down); y: add(r, o); loss: mse(y, goal)"},
    {"samples_mixed", TOKENS "goal 6,4,5", TABLE "w 5,4; b 5; u 6,6",
     ROWS "h: linear(x, u); f: transpose(h, dim0: 0, dim1: 2); y: linear(f, w, b); loss: "
          "mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"softmax_of_positions", TOKENS "goal 4,6,4", TABLE "w 6,6",
     ROWS "h: linear(x, w); f: transpose(h, dim0: 1, dim1: 2); y: softmax(f); loss: mse(y, goal)"},
    /* ---- slices and broadcasts ---- */
    {"slice_features", TOKENS "goal 4,4,5", TABLE "u 11,6; w 5,4",
     ROWS "h: linear(x, u); a: slice(h, dim: 2, begin: 1, end: 5); b: slice(h, dim: 2, begin: "
          "6, end: "
          "11)\n"
          "c: linear(a, w); y: mul(c, b); loss: mse(y, goal)"},
    {"slice_positions", TOKENS "goal 4,2,5", TABLE "w 5,6; b 5; u 5,6",
     ROWS "h: slice(x, dim: 1, begin: 0, end: 2); k: slice(x, dim: 1, begin: 1, end: 3)\n"
          "a: linear(h, w, b); c: linear(k, u); y: mul(a, c); loss: mse(y, goal)"},
    {"slice_last_position", TOKENS "goal 4,1,5", TABLE "u 6,6; w 5,6",
     ROWS "h: linear(x, u); a: gelu(h); f: slice(a, dim: 1, begin: 3, end: 4); y: linear(f, w)\n"
          "loss: mse(y, goal)"},
    {"slice_samples", TOKENS "goal 2,4,5", TABLE "w 5,6; b 5",
     ROWS
     "h: linear(x, w, b); a: slice(h, dim: 0, begin: 0, end: 2); c: slice(h, dim: 0, begin: 2, "
     "end: 4)\n"
     "y: mul(a, c); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"slice_weight", TOKENS "goal 4,4,3", TABLE "w 8,6",
     ROWS "a: slice(w, dim: 0, begin: 1, end: 4); b: slice(w, dim: 0, begin: 5, end: 8)\n"
          "c: linear(x, a); d: linear(x, b); y: mul(c, d); loss: mse(y, goal)"},
    {"split_swiglu", TOKENS "goal 4,4,6", TABLE "w 14,6; down 6,7",
     ROWS "h: linear(x, w); s: split(h, sections: 2); m: swiglu(s.0, s.1); y: linear(m, down)\n"
          "loss: mse(y, goal)"},
    {"broadcast_positions", TOKENS "goal 4,4,6", TABLE "p 4,6; q 4,6; s 6; c 6",
     ROWS "a: add(x, p); b: mul(a, q); d: mul(b, s); v: tanh(d); y: add(v, c); loss: mse(y, goal)"},
    {"broadcast_sample", TOKENS "goal 4,4,5", TABLE "w 5,6",
     ROWS "h: linear(x, w); f: slice(h, dim: 0, begin: 1, end: 2); s: reshape(f, shape: [4,5])\n"
          "m: mul(h, s); y: add(m, s); loss: mse(y, goal)",
     .refused = ORACLE_TWICE},
    {"broadcast_over_samples", "x 4,6; z 6,3; goal 4,6", "w 6,6; u 1,3",
     "h: linear(x, w); r: linear(z, u); s: reshape(r, shape: [6]); y: mul(h, s); loss: mse(y, "
     "goal)",
     .refused = ORACLE_TWICE},
    /* ---- collectives written out ---- */
    {"positions_to_features", TOKENS "goal 4,4,5", TABLE "u 8,6; w 8,8; v 5,8",
     ROWS "h: linear(x, u); f: all_to_all(h, axis: cp, from: 1, dim: 2); a: tanh(f)\n"
          "b: all_to_all(a, axis: cp, from: 2, dim: 1); c: linear(b, w); y: linear(c, v)\n"
          "loss: mse(y, goal)"},
    {"positions_to_heads", TOKENS "goal 4,4,5", TABLE "wq 16,6; wk 16,6; wv 16,6; wo 5,16",
     ROWS
     "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
     "qh: all_to_all(q, axis: cp, from: 1, dim: 2); kh: all_to_all(k, axis: cp, from: 1, dim: 2)\n"
     "vh: all_to_all(v, axis: cp, from: 1, dim: 2); a: attention(qh, kh, vh, head_dim: 4)\n"
     "b: all_to_all(a, axis: cp, from: 2, dim: 1); y: linear(b, wo); loss: mse(y, goal)"},
    {"heads_with_dropout", TOKENS "goal 4,4,16", TABLE "wq 16,6; wk 16,6; wv 16,6",
     ROWS
     "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
     "qh: all_to_all(q, axis: cp, from: 1, dim: 2); kh: all_to_all(k, axis: cp, from: 1, dim: 2)\n"
     "vh: all_to_all(v, axis: cp, from: 1, dim: 2)\n"
     "a: attention(qh, kh, vh, head_dim: 4, dropout: 0.2); d: dropout(a, p: 0.2)\n"
     "y: all_to_all(d, axis: cp, from: 2, dim: 1); loss: mse(y, goal)"},
    {"positions_to_vocabulary", TEXT, TABLE "w 16,6",
     ROWS "h: linear(x, w); y: all_to_all(h, axis: cp, from: 1, dim: 2)\n"
          "loss: cross_entropy(y, targets, valid: 11)"},
    {"slices_written", TOKENS "goal 4,4,5", TABLE "up 8,6 0; down 6,8 1; n 6; w 5,6",
     ROWS "u: linear(x, up); d: linear(u, down); s: reduce_scatter(d, axis: tp, dim: 1)\n"
          "k: rmsnorm(s, n); g: gelu(k); f: all_gather(g, axis: tp, dim: 1); y: linear(f, w)\n"
          "loss: mse(y, goal)"},
    {"features_scattered", TOKENS "goal 4,4,5", TABLE "up 8,6 0; down 6,8 1; b 6; w 5,6",
     ROWS
     "u: linear(x, up); d: linear(u, down); s: reduce_scatter(d, axis: tp, dim: 2)\n"
     "k: add(s, b); g: gelu(k); f: all_gather(g, axis: tp); y: linear(f, w); loss: mse(y, goal)"},
    {"slices_to_heads", TOKENS "goal 4,4,5", TABLE "wq 8,6 0; wk 8,6 0; wv 8,6 0; wo 5,8",
     ROWS
     "q: linear(x, wq); k: linear(x, wk); v: linear(x, wv); a: attention(q, k, v, head_dim: 4)\n"
     "s: all_to_all(a, axis: tp, from: 2, dim: 1); g: silu(s); f: all_gather(g, axis: tp)\n"
     "y: linear(f, wo); loss: mse(y, goal)"},
    {"gram_scattered", TOKENS "goal 4,8,7", TABLE "u 8,6; v 7,6; w 7,7",
     ROWS
     "a: linear(x, u); b: linear(x, v); m: matmul(a, b, transpose_a: 1)\n"
     "s: reduce_scatter(m, axis: cp, dim: 1); f: tanh(s); y: linear(f, w); loss: mse(y, goal)"},
    {"positions_gathered", TOKENS "goal 4,4,5", TABLE "u 7,6; w 5,7",
     ROWS "h: linear(x, u); f: all_gather(h, axis: cp, dim: 1); a: tanh(f)\n"
          "s: scatter(a, axis: cp, dim: 1); y: linear(s, w); loss: mse(y, goal)"},
    {"loss_reduced_over_positions", TEXT, TABLE "w 16,6",
     ROWS "y: linear(x, w); part: cross_entropy(y, targets, valid: 11)\n"
          "loss: all_reduce(part, axis: cp)"},
    /* ---- mixtures of experts: as many as any mesh shares out, most of which have no token ---- */
    {"experts_shared_out", TOKENS "goal 4,4,6",
     TABLE "r 32,6; gate 32,8,6 experts 0; up 32,8,6 experts 0; down 32,6,8 experts 0\n"
           "bg 32,8 experts 0; bd 32,6 experts 0",
     ROWS "s: router(x, r); p: softmax(s); c: choose_experts(p, k: 2)\n"
          "v: expert_weights(p, c, normalize: 1); plan: expert_plan(c, gate)\n"
          "a: permute_experts(x, plan); g: expert_linear(a, gate, plan, bg)\n"
          "u: expert_linear(a, up, plan); m: clamped_swiglu(g, u, limit: 0.5)\n"
          "d: expert_linear(m, down, plan, bd)\n"
          "f: combine_experts(d, v, plan); y: add(x, f); loss: mse(y, goal)"},
    {"experts_split", TOKENS "goal 4,4,6", /* DeepSeek-V3's routing */
     TABLE "r 16,6; b 16; up 16,8,6 experts 1; down 16,6,8 experts 2; bu 16,8 experts 1\n"
           "bd 16,6 experts",
     ROWS "s: router(x, r); p: sigmoid(s); q: add(p, b)\n"
          "c: choose_experts(q, k: 3, groups: 4, kept_groups: 2)\n"
          "v: expert_weights(q, c, normalize: 1, scale: 2.5); plan: expert_plan(c, up)\n"
          "a: permute_experts(x, plan); u: expert_linear(a, up, plan, bu)\n"
          "m: gelu(u); d: expert_linear(m, down, plan, bd); f: combine_experts(d, v, plan); y: "
          "add(x, f)\n"
          "loss: mse(y, goal)"},
    {"experts_twice", TOKENS "goal 4,4,6", /* a softmax over the chosen, weights used twice */
     TABLE "r 32,6; q 32,6; w 32,6,6 experts",
     ROWS "s: router(x, r); c: choose_experts(s, k: 2); v: expert_weights(s, c, softmax: 1)\n"
          "plan: expert_plan(c, w); a: permute_experts(x, plan); h: expert_linear(a, w, plan)\n"
          "g: tanh(h); z: combine_experts(g, v, plan); s2: router(z, q)\n"
          "c2: choose_experts(s2, k: 1); p2: softmax(s2); v2: expert_weights(p2, c2)\n"
          "plan2: expert_plan(c2, w); a2: permute_experts(z, plan2)\n"
          "h2: expert_linear(a2, w, plan2); y: combine_experts(h2, v2, plan2)\n"
          "loss: mse(y, goal)"},
    {"experts_all", "x 4,7; goal 4,5", /* rows of features; all experts are chosen */
     "u 6,7; r 8,6; w 8,5,6 experts",
     "h: linear(x, u); s: router(h, r); p: softmax(s); c: choose_experts(p, k: 8)\n"
     "v: expert_weights(p, c); plan: expert_plan(c, w); a: permute_experts(h, plan)\n"
     "d: expert_linear(a, w, plan); y: combine_experts(d, v, plan); loss: mse(y, goal)"},
    /* ---- positions that the units do not divide ---- */
    {"odd_positions", "t 4,6 tokens; goal 4,6,5", TABLE "w 5,6",
     ROWS "y: linear(x, w); loss: mse(y, goal)", .refused = ORACLE_POSITIONS},
};
const int oracle_cases_count = sizeof oracle_cases / sizeof *oracle_cases;

enum { VOCABULARY = 11 };

tsr_graph *oracle_build(tsr_arena *arena, const oracle_case *c, const oracle_recipe *r) {
  tsr_units units = {r->batch, r->sequence, r->tp, r->expert};
  tsr_graph *g = tsr_graph_new(arena, c->name, units);
  harness_inputs(g, c->inputs);
  harness_params(g, c->params);
  harness_calls(g, c->calls);
  for (int v = 0; v < g->values_count; v++)
    CHECK_AT(
        harness_find(g, g->values[v].name) == v, "%s has two values '%s'", c->name,
        g->values[v].name);
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

harness_options oracle_options(const oracle_recipe *r) {
  harness_options o = {.dp = 1, .tp = 1, .threads = 2, .ignore_some = true};
  o.vocabulary = VOCABULARY;
  o.microbatches = r->microbatches;
  o.batch_units = r->batch;
  o.sequence_units = r->sequence;
  o.tp_units = r->tp;
  return o;
}
