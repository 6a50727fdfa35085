// SPDX-License-Identifier: Apache-2.0
/* A class of transformers as the section `huggingface` of a graph file declares it: what the keys
 * of its config.json are, as sizes of the graph. docs/graph_files.md is the user's page. */
#ifndef TSR_CHECKPOINT_HF_CLASS_H
#define TSR_CHECKPOINT_HF_CLASS_H
#include "model/graph_file.h"

typedef enum {
  TSR_HF_INTEGER,
  TSR_HF_REAL,
  TSR_HF_BOOLEAN,
  TSR_HF_WORD,
  TSR_HF_WORDS, /* lists */
  TSR_HF_INTEGERS,
  TSR_HF_REALS,
  TSR_HF_TOKEN,   /* a token, or -1; negative ones count from the end of the vocabulary */
  TSR_HF_MEMBERS, /* a number, or what has so many members */
  TSR_HF_LABELS,  /* an object of the numbers from 0 on and names of classes; as a value how many */
  TSR_HF_LABEL_IDS /* its inverse; as a value how many members it has */
} tsr_hf_kind;

typedef struct {
  const tsr_yaml *json; /* a scalar or null */
  const tsr_yaml *size; /* the same as the size has it; NULL: as it is */
} tsr_hf_value;

typedef struct {
  const char *name;
  tsr_location location;
  const char **places; /* its name, then its aliases */
  int places_count;
  const char *size; /* or NULL */
  tsr_hf_kind kind;
  tsr_hf_value *values; /* all that are supported; NULL: any */
  int values_count;
  tsr_expr *missing, *null; /* its value where it is missing or null; NULL: an error */
  const tsr_yaml *members;  /* of the object that is missing, for the key `rope` alone */
  tsr_expr *condition;      /* or NULL */
  double least;
  bool above;      /* `least` itself is too little */
  tsr_expr *write; /* in sizes; NULL: `size`, else the first value */
  bool unwritten;
} tsr_hf_key;

typedef struct {
  const char *name;
  tsr_location location;
  tsr_expr *value, *condition; /* condition: or NULL */
} tsr_hf_size;

typedef struct {
  tsr_expr *that;
  const char *text;
  bool is_warning;
  tsr_location location;
} tsr_hf_check;

typedef struct {
  const char *model_type;
  tsr_location location;
  const char **architectures;
  int architectures_count;
  const char *graph; /* which imports select; NULL: the file itself */
  tsr_expr *when;    /* or NULL */
  tsr_hf_key *keys;
  int keys_count;
  tsr_hf_size *sizes;
  int sizes_count;
  tsr_hf_check *checks, *requires;
  int checks_count, requires_count;
  const tsr_yaml *copies; /* a map of names, or NULL */
  const char **ignored;   /* ends of names */
  int ignored_count;
  tsr_expr *prediction_blocks; /* or NULL */
} tsr_hf_class;

/* Number `index` of the list of classes; `file` has the sizes. All errors of form in one run. */
bool tsr_hf_class_read(
    tsr_arena *arena, const tsr_yaml *list, int index, const tsr_graph_file *file,
    tsr_hf_class *ret_class, tsr_diags *diags);

/* A size of that name, not an alias; or NULL. */
const tsr_size_decl *tsr_hf_size_decl(const tsr_graph_file *file, const char *name);
/* Whether a value of config.json, true and false as 1 and 0, and null as the word, is this one. */
bool tsr_hf_value_is(const tsr_yaml *value, const tsr_eval *of);
/* The words among the values of its keys, which expressions compare. */
void tsr_hf_class_words(const tsr_hf_class *class, tsr_scope *scope);

#endif
