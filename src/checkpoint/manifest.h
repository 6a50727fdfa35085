// SPDX-License-Identifier: Apache-2.0
/* What a checkpoint holds. A checkpoint is a folder:
 *
 *   manifest.json            this, the last file to be written
 *   rank-00000.safetensors   the parts that rank 0 writes of parameters and optimizer state, …
 *   history.safetensors      the losses and gradient norms of all steps so far
 *   config.yaml              the configuration with every value resolved
 *   vocabulary.txt, tokenizer.json   the tokenizer, where it has a file
 *
 * A tensor's pieces are slices of the whole tensor, without padding, together all of it; each is a
 * tensor of its file, so that any reader of safetensors reads them. Every byte of every file is
 * under a hash: the pieces and the files' other bytes under the manifest's, the manifest under the
 * one that it begins with.
 *
 * A folder is committed when it has its name: it is written as NAME.partial, flushed, and renamed.
 * So whatever stops a run, a folder without that ending is whole, unless the disk lied; then its
 * hashes say so. */
#ifndef TSR_CHECKPOINT_MANIFEST_H
#define TSR_CHECKPOINT_MANIFEST_H
#include "base/diag.h"
#include "base/hash.h"
#include "base/text.h"
#include "config/recipe_keys.h"
#include "graph/graph.h"

enum { TSR_MANIFEST_VERSION = 1 };
#define TSR_MANIFEST_NAME "manifest.json"

typedef struct {
  int file;              /* index into the manifest's files */
  int64_t offset, bytes; /* in the file */
  int64_t begin[TSR_DIMS_MAX], shape[TSR_DIMS_MAX];
  char hash[TSR_HASH_TEXT]; /* XXH3-128 of the bytes, in hexadecimal */
} tsr_stored_piece;

typedef struct {
  const char *name; /* "block.0.attn.wq", its state "block.0.attn.wq.m", "history.loss" */
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* whole, without padding */
  tsr_stored_piece *pieces;
  int pieces_count;
} tsr_stored;

typedef struct {
  const char *name;
  int64_t bytes;
  int64_t header;           /* bytes before the first tensor; all of a file without tensors */
  char hash[TSR_HASH_TEXT]; /* of these */
} tsr_stored_file;

/* An evaluation during the run; step 0: none. */
typedef struct {
  int64_t step;
  double loss;
} tsr_evaluated_step;

/* What a run remembers of its evaluations (train/validation_monitor.h). */
enum { TSR_BEST_MAX = 16 };
typedef struct {
  tsr_evaluated_step best[TSR_BEST_MAX]; /* of the least losses, the least first */
  int best_count;
  tsr_evaluated_step improved; /* the last one that was an improvement */
  int64_t stale;               /* evaluations since */
} tsr_validation_state;

/* Where a run is. */
typedef struct {
  int64_t step;    /* steps done */
  int64_t updates; /* of them those that changed the weights */
  int64_t samples; /* the next sample's position in the global order */
  uint64_t seed;
  double loss;    /* of the last step, an f32; NaN: none was done */
  bool has_scale; /* fp16's loss scale (train/loss_scale.h), which resumes from here */
  float scale;
  int64_t scale_good_steps;
  tsr_validation_state validation;
} tsr_run_state;

typedef struct {
  const char *folder; /* as it was found */
  tsr_run_state state;
  bool has_state;           /* with optimizer state: a run can resume */
  const char *mesh, *isa;   /* that it was written on: to be shown */
  const char *tag;          /* checkpoint.tag, or NULL: to be shown */
  const char *version;      /* of the program */
  int64_t time;             /* seconds since 1970 */
  const char *config;       /* the name of its configuration's file in the folder, or NULL */
  const char *tokenizer;    /* the same of its tokenizer, or NULL */
  tsr_recipe_entry *recipe; /* rising by key */
  int recipe_count;
  tsr_stored_file *files;
  int files_count;
  tsr_stored *tensors; /* rising by name */
  int tensors_count;
} tsr_manifest;

/* The text of manifest.json. */
void tsr_manifest_print(const tsr_manifest *manifest, tsr_text *text);

/* What copies of a checkpoint have in common, in lines: the state, the recipe, hashes of tensors
 * and of the files beside them. Not what the time and the place of writing decide, and not the
 * configuration. */
void tsr_manifest_print_content(const tsr_manifest *manifest, tsr_text *text);

/* Reads a folder's manifest: its own hash, then every number against every other (pieces inside
 * their tensor and file, of the right size, together as many elements as the tensor). The files are
 * not opened. Errors: at the manifest. */
bool tsr_manifest_read(
    tsr_arena *arena, const char *folder, tsr_location location, tsr_manifest *ret_manifest,
    tsr_diags *diags);
/* The same of a text, which errors call `path`. */
bool tsr_manifest_parse(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_manifest *ret_manifest,
    tsr_diags *diags);

/* The same of the text that one of several writers leaves: its files and its pieces, which need not
 * be all of a tensor. */
bool tsr_manifest_parse_part(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_manifest *ret_manifest,
    tsr_diags *diags);

/* The bytes of a tensor's elements, and of those of all tensors. */
int64_t tsr_stored_bytes(const tsr_stored *tensor);
int64_t tsr_manifest_tensor_bytes(const tsr_manifest *manifest);
const tsr_stored *tsr_manifest_find(const tsr_manifest *manifest, const char *name); /* or NULL */
int64_t tsr_stored_elements(int ndim, const int64_t *shape);
int64_t tsr_manifest_bytes(const tsr_manifest *manifest); /* of all files but the manifest */
const char *tsr_recipe_value(const tsr_manifest *manifest, const char *key); /* or NULL */
/* Whether it is of a run that trained adapters, without the parameters that were frozen. */
bool tsr_manifest_has_adapters(const tsr_manifest *manifest);

#endif
