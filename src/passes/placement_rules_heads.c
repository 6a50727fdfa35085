// SPDX-License-Identifier: Apache-2.0
/* The placement rules of attention in every form, of rotary positions, and of generation with a
 * cache: whole heads may be split, and positions over cp. */
#include "passes/placement_rule_inputs.h"

/* Whether an input of attention has heads of values: v, and out and its gradient. */
static bool has_value_heads(const call *c, int i) {
  switch ((int)c->node->op) {
  case TSR_OP_ATTENTION:
  case TSR_OP_DOCUMENT_ATTENTION:
  case TSR_OP_ATTENTION_CACHED:
    return i == 2;
  case TSR_OP_ATTENTION_DX:
  case TSR_OP_DOCUMENT_ATTENTION_DX:
    return i == 0 || i == 3 || i == 4;
  case TSR_OP_ATTENTION_SINKS_DX:
    return i < 2;
  default:
    return false;
  }
}

/* Of attention in every form, and of rope: all their attributes begin with head_dim. */
static int64_t heads_of(const call *c, int i) {
  bool values = has_value_heads(c, i);
  int64_t size = values ? tsr_node_value_head(c->node) : c->node->attr.attention.head_dim;
  return input(c, i)->shape[2] / size;
}
/* Where (batch, sequence, heads * head_dim) is split along its last dimension, whole heads are. */
static void check_heads(call *c, int i) {
  if (c->error || !is_last(c, i) || heads_of(c, i) % c->parts == 0) return;
  c->error = tsr_arena_printf(
      c->g->arena, "%s: the %lld heads of '%s' cannot be split over %s: its units are %lld",
      tsr_op_title(c->node->op), (long long)heads_of(c, i), input(c, i)->name,
      tsr_axis_name(c->axis), (long long)c->parts);
}

/* x (batch, sequence, heads * head_dim): batches and heads are independent, and over cp each rank
 * has its positions' part of the table. */
void tsr_place_rope(call *c) {
  bool context = is_shard(c->in[0], 1) && c->axis == TSR_CP;
  if ((is_shard(c->in[0], 1) && !context) || c->in[0].kind == TSR_PARTIAL) c->in[0] = whole;
  c->in[1] = context ? shard(0) : whole; /* the table (T, D/2, 2) */
  check_heads(c, 0);
  give_all(c, c->in[0]);
}

/* Over cp positions are split as well: the members' parts then go round (tsr_ring_attention). */
void tsr_place_attention(call *c) {
  bool divides = true;
  tsr_placement p = whole;
  for (int i = 0; i < c->node->inputs_count; i++) {
    bool splits =
        ndim(c, i) == 3 && c->in[i].kind == TSR_SHARD && (c->in[i].dim != 1 || c->axis == TSR_CP);
    divides &= ndim(c, i) != 3 || heads_of(c, i) % c->parts == 0;
    if (splits && p.kind != TSR_SHARD) p = c->in[i];
  }
  /* The gradient's first input, dout, may be split where q is whole. */
  bool backward = c->node->op == TSR_OP_ATTENTION_DX || c->node->op == TSR_OP_DOCUMENT_ATTENTION_DX;
  if (backward && is_shard(p, 2) && !divides && c->in[1].kind != TSR_SHARD) p = whole;
  /* (batch, heads, sequence, 2) */
  tsr_placement stats = is_shard(p, 2) ? shard(1) : is_shard(p, 1) ? shard(2) : p;
  for (int i = 0; i < c->node->inputs_count; i++) {
    tsr_placement sinks = is_shard(p, 2) ? shard(0) : whole;
    c->in[i] = ndim(c, i) == 4 ? stats : ndim(c, i) == 1 ? sinks : p;
    if (ndim(c, i) == 3) check_heads(c, i);
  }
  give_all(c, p);
  if (!backward) c->out[1] = stats;
}

/* attention, with positions (batch, sequence) among the inputs. Over cp a rank computes its own
 * positions: forward of its queries and all keys; backward of all inputs, for the gradients of its
 * keys sum over queries of all members. */
void tsr_place_document_attention(call *c) {
  bool backward = c->node->op == TSR_OP_DOCUMENT_ATTENTION_DX;
  tsr_placement out, stats;
  tsr_place_attention(c);
  out = c->out[0], stats = c->out[1];
  for (int i = 0; i < c->node->inputs_count; i++) {
    bool own = i == 0 && !backward;
    if (ndim(c, i) == 2) c->in[i] = is_shard(out, 0) ? out : whole;
    else if (c->axis == TSR_CP && is_shard(out, 1) && !own) c->in[i] = whole;
  }
  give_all(c, out);
  if (!backward) c->out[1] = stats;
}

/* dout, out (batch, sequence, heads * features), stats, sinks (heads) → (batch, sequence, heads) */
void tsr_place_attention_sinks_dx(call *c) {
  tsr_placement p = whole;
  for (int i = 0; i < 2 && p.kind != TSR_SHARD; i++)
    if (c->in[i].kind == TSR_SHARD && (c->in[i].dim != 1 || c->axis == TSR_CP)) p = c->in[i];
  c->in[0] = c->in[1] = p;
  c->in[2] = is_shard(p, 2) ? shard(1) : is_shard(p, 1) ? shard(2) : p;
  c->in[3] = is_shard(p, 2) ? shard(0) : whole;
  for (int i = 0; i < 2; i++) check_heads(c, i);
  give_all(c, p);
}

/* Numbers of each sequence: (batch), and the pages of its cache, (batch, pages of a row). */
static bool is_of_sequences(const call *c, int input) {
  int pages = c->node->op == TSR_OP_ATTENTION_CACHED ? 5 : 3;
  bool has_pages = c->node->op == TSR_OP_KV_CACHE_APPEND || pages == 5;
  return ndim(c, input) == 1 || (has_pages && input == pages);
}

/* x (batch, new tokens, features), others like it, a rope's table, numbers of each sequence, of
 * attention its sinks (heads): batches and heads are independent. Members that split the batch have
 * their own parts of the pool of pages, and number these from 0 on. Nothing here is split along
 * positions. */
void tsr_place_cached(call *c) {
  tsr_op op = c->node->op;
  tsr_placement p = whole;
  int tensors = op == TSR_OP_ATTENTION_CACHED ? 3 : 1; /* q, keys, values */
  for (int i = 0; i < tensors && p.kind != TSR_SHARD; i++)
    if (c->in[i].kind == TSR_SHARD && c->in[i].dim != 1) p = c->in[i];
  for (int i = 0; i < c->node->inputs_count; i++) {
    c->in[i] = i < tensors ? p : is_of_sequences(c, i) && is_shard(p, 0) ? p : whole;
    if (i == 6) c->in[i] = is_shard(p, 2) ? shard(0) : whole; /* the sinks */
    if (i < tensors && (op == TSR_OP_ATTENTION_CACHED || op == TSR_OP_ROPE_AT)) check_heads(c, i);
  }
  give_all(c, p);
}

/* x, table, positions (batch) of new tokens, or (batch, positions) of the tokens of documents. */
void tsr_place_rope_at(call *c) {
  if (ndim(c, 2) == 1) return tsr_place_cached(c);
  tsr_place_rope(c);
  c->in[1] = whole;
  c->in[2] = is_shard(c->in[0], 2) ? whole : c->in[0];
}

/* table (positions, features), positions (batch) → (batch, new tokens, features) */
void tsr_place_gather_rows(call *c) {
  tsr_placement p = is_shard(c->in[1], 0) ? shard(0) : whole;
  if (p.kind != TSR_SHARD && is_shard(c->in[0], 1)) p = shard(2);
  c->in[0] = is_shard(p, 2) ? shard(1) : whole;
  c->in[1] = is_shard(p, 0) ? p : whole;
  give_all(c, p);
}

/* Heads of which every one is the same: each rank of tp makes its own. */
void tsr_place_expand_heads(call *c) {
  bool passes = c->in[0].kind == TSR_SHARD && c->in[0].dim < 2 && c->axis != TSR_TP;
  bool splits = c->axis == TSR_TP && c->node->attr.expand_heads.heads % c->parts == 0;
  if (!passes) c->in[0] = whole;
  give_all(c, splits ? shard(2) : c->in[0]);
}

/* The sum over heads is made of tp's units where these divide them, whether or not they are split
 * here. */
void tsr_place_sum_heads(call *c) {
  bool passes = c->in[0].kind == TSR_SHARD && c->in[0].dim < 2 && c->axis != TSR_TP;
  bool splits = c->axis == TSR_TP && c->node->attr.expand_heads.heads % c->parts == 0;
  if (!passes) c->in[0] = splits ? shard(2) : whole;
  give_all(c, splits ? (tsr_placement){TSR_PARTIAL, 0} : c->in[0]);
}
