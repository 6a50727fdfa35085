// SPDX-License-Identifier: Apache-2.0
/* How the models of a graph file are written as GGUF: configs/gguf/NAME.yaml, evaluated with the
 * sizes of one model. docs/gguf_files.md describes the format. */
#ifndef TSR_CHECKPOINT_GGUF_MAPPING_H
#define TSR_CHECKPOINT_GGUF_MAPPING_H
#include "checkpoint/gguf.h"
#include "config/config.h"
#include "graph/graph.h"

typedef struct tsr_gguf_mapping tsr_gguf_mapping;

/* `file_type` is what the file's general.file_type has. Errors: a model without such a file; what
 * its checks refuse, at the model of the configuration. */
bool tsr_gguf_mapping_read(
    tsr_arena *arena, const tsr_config *config, const char *graphs_folder, int64_t vocab_stored,
    int64_t file_type, tsr_gguf_mapping **ret_mapping, tsr_diags *diags);

const char *tsr_gguf_architecture(const tsr_gguf_mapping *mapping);
/* A size of the model, a number; false where there is none of that name. */
bool tsr_gguf_mapped_size(const tsr_gguf_mapping *mapping, const char *size, int64_t *ret_value);
bool tsr_gguf_mapping_has_key(const tsr_gguf_mapping *mapping, const char *key); /* of metadata */
/* What the file has under `tokenizer:`, or NULL:
 *   space_prefix   tokenizer_config.json's add_prefix_space goes with the tokenizer
 *   special        further special tokens, by kind: {eot: "<|user|>"}
 *   sentencepiece  a tokenizer.model ("model"), or also a tokenizer.json of its kind ("any")
 *   added_tokens   its tokens are also those that tokenizer.json adds, as they are
 *   no_space_prefix  texts get no space in front with a tokenizer.model */
const tsr_yaml *tsr_gguf_mapping_tokenizer(const tsr_gguf_mapping *mapping, const char *key);
/* A condition of the file, in `section` (NULL: none); false where it has none of that name:
 *   tokenizer: no_bos   texts get no token in front, whatever the tokenizer's files say
 *   q5_k_values         in q4_k_m, the layers of values are Q5_K where they would be Q4_K */
bool tsr_gguf_mapping_condition(
    const tsr_gguf_mapping *mapping, const char *section, const char *key, bool *ret_holds,
    tsr_diags *diags);
/* Warns of what llama.cpp computes in another way. */
bool tsr_gguf_mapping_warn(const tsr_gguf_mapping *mapping, tsr_diags *diags);
/* Appends the architecture's keys: those of `first`, which lie behind general.architecture, or the
 * others. */
bool tsr_gguf_mapping_metadata(
    const tsr_gguf_mapping *mapping, bool first, tsr_gguf_metadata *metadata, tsr_diags *diags);

/* What a tensor there has of a parameter: of each group of `group` rows the rows [first, first +
 * rows). A tensor may have several parameters behind each other, as its parts 0, 1, …. */
typedef struct {
  const char *name;
  int part;
  int64_t group, first, rows; /* group 0: all rows as they are */
  bool splits;                /* the groups are the tensor's first dimension */
  bool transposed;            /* rows and columns of each group are swapped there */
  bool pairs;                 /* row i and row group / 2 + i are neighbours there */
  float plus;                 /* added to each element */
} tsr_gguf_piece;

enum { TSR_GGUF_PIECES_MAX = 4 };
/* False with an error for a parameter that the file does not name. */
bool tsr_gguf_mapping_pieces(
    const tsr_gguf_mapping *mapping, const tsr_param *param,
    tsr_gguf_piece ret_pieces[TSR_GGUF_PIECES_MAX], int *ret_count, tsr_diags *diags);

/* Divisors of the rotary angles' frequencies, in a tensor of their own: Llama 3's scaling, or one
 * of LongRoPE's lists. */
typedef struct {
  const char *name; /* of the tensor */
  float *values;    /* (count) */
  int64_t count;
} tsr_gguf_factors;

enum { TSR_GGUF_FACTORS_MAX = 4 };
bool tsr_gguf_mapping_rope_factors(
    const tsr_gguf_mapping *mapping, tsr_gguf_factors ret_list[TSR_GGUF_FACTORS_MAX],
    int *ret_count, tsr_diags *diags);

#endif
