// SPDX-License-Identifier: Apache-2.0
/* From a graph file and a model's sizes to the Graph: the parts of tsr_model_read, and what tests
 * call. */
#ifndef TSR_MODEL_BUILD_H
#define TSR_MODEL_BUILD_H
#include "model/graph_file.h"
#include "model/model.h"

/* The user's model: `transformer_config: {…}` or the like. */
typedef struct {
  const char *name;      /* of a graph file that names none itself, or NULL */
  const tsr_yaml *map;   /* NULL: no sizes are given */
  const char *map_name;  /* transformer_config */
  tsr_location location; /* of that key, for what is missing */
  const tsr_yaml *root;  /* the graph file's map, or just its list of statements */
  bool uneven;           /* tp may split its parameters into uneven blocks */
} tsr_model_source;

/* The model of a configuration: its map of sizes and the graph file that it selects. */
bool tsr_model_source_read(
    tsr_arena *arena, const tsr_config *config, const char *graphs_folder,
    tsr_model_source *ret_source, tsr_diags *diags);

bool tsr_model_build(
    tsr_arena *arena, const tsr_model_source *source, const tsr_model_options *options,
    tsr_model **ret_model, tsr_diags *diags);

/* Evaluates all sizes in their order into `scope`, then the built-in ones. */
bool tsr_sizes_read(
    tsr_scope *scope, const tsr_graph_file *file, const tsr_model_source *source,
    const tsr_model_options *options, tsr_diags *diags);
/* How many rows a vocabulary is stored in, the size `vocab_padded`: a multiple of the tp units, and
 * from 1,024 tokens on of 128 and of 8 for each tp unit. So each unit of a row of logits begins at
 * a multiple of 16 bytes in half precision too, without which the GEMMs of GPUs are slow. It
 * depends on the recipe alone, on no mesh and no device. */
int64_t tsr_vocab_stored(int64_t vocab, int64_t tp_units);
/* The defaults of the sizes of a scope that tsr_sizes_read has filled. */
void tsr_sizes_defaults(tsr_scope *scope, const tsr_graph_file *file, tsr_model *model);
/* A size as a whole number, 0 when there is none of that name. */
int64_t tsr_sizes_get(const tsr_scope *scope, const char *name);
bool tsr_checks_run(tsr_scope *scope, const tsr_graph_file *file, tsr_diags *diags);

/* A parameter of the graph, its names prefixed; `ret_param` is valid only on success. `uneven`:
 * where tp's units do not divide it, its padding has a block for each of them
 * (model/uneven_shards.h). */
bool tsr_param_make(
    tsr_scope *scope, tsr_param_decl *decl, const char *prefix, int64_t tp_units, bool uneven,
    tsr_param *ret_param, tsr_diags *diags);

/* The graph file written out: repeats and blocks copied, names resolved, attributes evaluated. */
typedef enum { TSR_FLAT_INPUT, TSR_FLAT_PARAM, TSR_FLAT_CALL } tsr_flat_kind;
typedef struct {
  tsr_flat_kind kind;
  int index, output; /* into inputs, params or calls; which output of a call */
  int value;         /* in the graph; -1 before it is made, -2 when that failed */
} tsr_flat_value;

typedef struct {
  tsr_statement *statement;
  tsr_call call;              /* inputs: indices of flat values */
  int outputs, outputs_count; /* flat values */
  bool needed;
  const char *prefix; /* of the results' names */
  bool is_idle;       /* its result is its input: a dropout outside training */
  int block;          /* as in tsr_node */
} tsr_flat_call;

typedef struct {
  tsr_param param;
  tsr_param_decl *decl;
} tsr_flat_param;

typedef struct {
  tsr_arena *arena;   /* of names and lists, which the graph has too */
  tsr_arena *scratch; /* of what is here alone */
  tsr_graph_file *file;
  const tsr_model_options *options;
  bool uneven; /* as in the source */
  tsr_scope *scope;
  tsr_diags *diags;
  tsr_flat_value *values;
  int values_count, values_capacity;
  tsr_flat_call *calls;
  int calls_count, calls_capacity;
  tsr_flat_param *params;
  int params_count, params_capacity;
  tsr_output_decl *outputs; /* the wanted ones */
  int *output_values;       /* flat */
  int outputs_count;
} tsr_flat;

bool tsr_flat_expand(tsr_flat *flat);
bool tsr_flat_emit(tsr_flat *flat, tsr_graph *g);

#endif
