// SPDX-License-Identifier: Apache-2.0
/* The table of all keys. One row gives a key's reading, type, range, default, printing, its entry
 * of the manual page and its part of the JSON Schema. */
#ifndef TSR_CONFIG_FIELDS_H
#define TSR_CONFIG_FIELDS_H
#include "base/text.h"
#include "config/config.h"

typedef enum {
  TSR_FIELD_INT,     /* int64_t */
  TSR_FIELD_SEED,    /* uint64_t */
  TSR_FIELD_FLOAT,   /* double */
  TSR_FIELD_BOOL,    /* bool */
  TSR_FIELD_TEXT,    /* const char * */
  TSR_FIELD_PATH,    /* const char *: of a file or folder, ${NAME} and file: URIs resolved */
  TSR_FIELD_CHOICE,  /* int, one of `choices` */
  TSR_FIELD_BYTES,   /* int64_t: a count, or a text like 8GiB */
  TSR_FIELD_SHAPE,   /* a list of counts: device.mesh_shape */
  TSR_FIELD_IDS,     /* a list of numbers from 0: device.device_ids */
  TSR_FIELD_AXES,    /* a list of axis names: device.axes */
  TSR_FIELD_STAGES,  /* a list of nodes, or of maps {name, begin}: pipeline.stages */
  TSR_FIELD_BLOCKS,  /* a list of counts, or a map {rank: count}: pipeline.blocks_per_rank */
  TSR_FIELD_SOURCES, /* a list of paths, or of maps {path, weight, format}: data_sources */
  TSR_FIELD_NAMES,   /* a text, or a list of texts: lora_config.target_modules */
  TSR_FIELD_NUMBERS, /* a map {name: number}: lora_config.rank_pattern */
  TSR_FIELD_SECTION, /* a map whose keys are rows of this table */
  TSR_FIELD_FREE,    /* a map that other parts read, or a value that is read by hand */
} tsr_field_type;

typedef enum {
  TSR_FIELD_USED,
  TSR_FIELD_MODEL,       /* read with the model's graph file; the row is for documents */
  TSR_FIELD_NO_EFFECT,   /* a value other than the default gets a warning with `why` */
  TSR_FIELD_UNSUPPORTED, /* a value other than the default is an error that names the feature */
} tsr_field_verdict;

typedef struct {
  const char *name;
  int value;
  const char
      *unsupported; /* the feature that is missing, and a hint behind a newline; NULL: fine */
} tsr_field_choice;

typedef struct {
  double min, max;
  bool min_open, max_open; /* the bound itself is out */
} tsr_field_range;

typedef struct tsr_field {
  const char *section, *key; /* section "": the top level; "training_config.optimizer": nested */
  tsr_field_type type;
  size_t at;            /* offset in tsr_config; 0: no member */
  const char *standard; /* the default, as YAML text; NULL: none */
  tsr_field_range range;
  const tsr_field_choice *choices; /* ends with a NULL name */
  const char *same_as;             /* another spelling of this "section.key" */
  tsr_field_verdict verdict;
  const char *why;  /* the feature (as `unsupported`), or why there is no effect */
  bool file;        /* a section that may stand in a file of its own, named by a path */
  const char *word; /* of a section: the key that a word in place of the map means */
  bool legacy;      /* tt-train's old optimizer keys */
  bool presence;    /* that it is written means something: a default is printed as a comment */
  bool unprinted;   /* `--print-config` shows what it resolves to instead */
  const char *doc;
} tsr_field;

extern const tsr_field tsr_fields[];
extern const int tsr_fields_count;
enum { TSR_FIELDS_MAX = 384 };

/* The row of a key in a section, or -1; `section_length` bytes of `section` count. */
int tsr_field_find(const char *section, size_t section_length, const char *key);
/* The row of "section.key" ("key" alone: of the top level), or -1. */
int tsr_field_find_dotted(const char *dotted_key);
const char *tsr_field_dotted_key(tsr_arena *arena, const tsr_field *field);
/* The section of the first row with that key, "" for the top level; NULL: there is none. */
const char *tsr_field_section(const char *key);

/* Whether --print-config shows the key of this configuration, and its value as it is shown
 * there. */
bool tsr_field_is_printed(const tsr_config *config, const tsr_field *field);
void tsr_field_print(const tsr_config *config, const tsr_field *field, tsr_text *text);

/* The canonical name of a choice's value. */
const char *tsr_field_choice_name(const tsr_field *field, int value);

/* "an integer, at least 1", "one of char, byte, bpe", …: for messages and documents. */
void tsr_field_describe(const tsr_field *field, tsr_text *text);
/* "at least 1", "above 0 and below 1"; nothing without a range. */
void tsr_field_range_describe(const tsr_field *field, tsr_text *text);

#endif
