// SPDX-License-Identifier: Apache-2.0
/* A graph file as read: its parts with their places and parsed expressions, nothing evaluated yet.
 * Everything lives in the arena. docs/graph_files.md is the user's page. */
#ifndef TSR_MODEL_GRAPH_FILE_H
#define TSR_MODEL_GRAPH_FILE_H
#include "base/axis.h"
#include "graph/graph.h"
#include "model/expr.h"

typedef enum {
  TSR_SIZE_INTEGER,
  TSR_SIZE_REAL,
  TSR_SIZE_BOOLEAN,
  TSR_SIZE_CHOICE,
  TSR_SIZE_LIST, /* of integers */
  TSR_SIZE_REALS /* a list of real numbers */
} tsr_size_kind;

typedef struct {
  const char **names; /* its own, then other keys of the model file for it; maps' with dots */
  int names_count;
  tsr_location location;
  tsr_size_kind kind;
  tsr_expr *value;  /* the default; NULL: must be given */
  const char *word; /* the default of a CHOICE */
  const char **choices;
  int choices_count;
  const tsr_yaml *refused; /* of a CHOICE: words that are known and refused, and why; or NULL */
  double min, max;
  bool bad; /* already reported */
} tsr_size_decl;

static inline bool tsr_size_is_list(const tsr_size_decl *d) {
  return d->kind == TSR_SIZE_LIST || d->kind == TSR_SIZE_REALS;
}

/* Under `parameters:` or (laid out by hand) under `tensors:`. */
typedef struct {
  const char *name;
  tsr_location location;
  tsr_expr *shape, *init, *valid0, *condition; /* init, valid0, condition may be NULL */
  tsr_expr *placement[TSR_AXES];               /* NULL: by `layout` */
  tsr_placement layout[TSR_AXES];
  const char *hf;
  tsr_location hf_place;
  bool hf_transposed;
  const char *replaces; /* a parameter, or NULL */
  tsr_expr *hf_rows;    /* [begin, end, of], or NULL */
  tsr_dtype dtype;
  int decay; /* -1: by the number of dimensions */
  bool used;
} tsr_param_decl;

typedef struct {
  const char *name;
  tsr_location location;
  tsr_dtype dtype;
  tsr_expr *shape;
  tsr_placement layout[TSR_AXES];
} tsr_input_decl;

typedef struct tsr_statement tsr_statement;
typedef struct {
  tsr_statement *items;
  int count;
} tsr_body;

typedef struct {
  tsr_param_decl *items;
  int count, capacity;
} tsr_param_decls;

typedef struct {
  const char *name;
  tsr_location location;
  tsr_yaml *node; /* read after all blocks' names are known */
  const char **inputs;
  int inputs_count;
  tsr_param_decls params;
  tsr_body body;
  const char *result;
  tsr_location result_place;
} tsr_block;

typedef enum { TSR_STATEMENT_CALL, TSR_STATEMENT_REPEAT, TSR_STATEMENT_GROUP } tsr_statement_kind;
struct tsr_statement {
  tsr_statement_kind kind;
  tsr_location location;
  tsr_expr *condition; /* or NULL */
  /* CALL */
  const char *results[TSR_CALL_INPUTS_MAX];
  tsr_location result_places[TSR_CALL_INPUTS_MAX];
  int results_count;
  tsr_expr *call;
  /* REPEAT, and the depth of a CALL of a block */
  tsr_expr *times;
  const char *as;
  tsr_param_decls params;
  tsr_body body, otherwise; /* REPEAT and GROUP; otherwise: the else of a GROUP */
  /* while it is expanded */
  bool expanded, needed, failed;
};

typedef struct {
  tsr_expr *that;
  const char *otherwise, *at; /* at: the size whose place the error takes, or NULL */
  tsr_location location;
} tsr_check;

typedef struct {
  const char *name, *value;
  tsr_location location;
} tsr_output_decl;

typedef struct {
  const char *name;
  tsr_location location;
  tsr_size_decl *sizes;
  int sizes_count;
  tsr_input_decl *inputs;
  int inputs_count, inputs_capacity;
  tsr_param_decls params;
  tsr_block *blocks;
  int blocks_count;
  tsr_check *checks;
  int checks_count;
  tsr_body body;
  tsr_output_decl *outputs; /* none: the results of the last statement */
  int outputs_count;
} tsr_graph_file;

/* The graph files of a folder, as "llama" for "llama.yaml", in the order of their names. */
int tsr_graph_files(tsr_arena *arena, const char *folder, const char ***ret_names);

/* The map of a graph file. A file that extends another one of its folder (`extends: llama.yaml`)
 * has that one's sections where it has none itself, and adds to its sizes or changes them. */
bool tsr_graph_file_load(
    tsr_arena *arena, const char *path, tsr_location location, tsr_yaml **ret_root,
    tsr_diags *diags);

/* The keys of `base` in their order, with the values of `over` where that has them; a key that
 * `over` alone has stands before the next one of both. */
tsr_yaml *tsr_yaml_join(tsr_arena *arena, const tsr_yaml *base, const tsr_yaml *over);

/* `root` is the file's map, or just its list of statements. All errors of form are reported in one
 * go. */
bool tsr_graph_file_read(
    tsr_arena *arena, const tsr_yaml *root, tsr_graph_file **ret_file, tsr_diags *diags);

/* Shared by the readers of the sections. */
typedef struct {
  tsr_arena *arena;
  tsr_graph_file *file;
  tsr_diags *diags;
} tsr_file_reader;

/* `node` is a map whose keys are all among `keys`; `what` names it in errors. */
bool tsr_file_keys(
    const tsr_file_reader *r, const tsr_yaml *node, const char *what, int count,
    const char *const *keys);
bool tsr_file_name(const tsr_file_reader *r, const tsr_yaml *node, const char **ret_name);
/* The expression under `key`, NULL when there is none. */
bool tsr_file_expr(
    const tsr_file_reader *r, const tsr_yaml *map, const char *key, tsr_expr **ret_expr);
bool tsr_file_sizes(const tsr_file_reader *r, const tsr_yaml *node);
bool tsr_file_inputs(const tsr_file_reader *r, const tsr_yaml *node);
bool tsr_file_params(const tsr_file_reader *r, const tsr_yaml *node, tsr_param_decls *params);
bool tsr_file_tensors(const tsr_file_reader *r, const tsr_yaml *node);
bool tsr_file_body(const tsr_file_reader *r, const tsr_yaml *node, tsr_body *ret_body);

#endif
