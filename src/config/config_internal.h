// SPDX-License-Identifier: Apache-2.0
/* What the parts of the configuration's reader share. Private to src/config. */
#ifndef TSR_CONFIG_CONFIG_INTERNAL_H
#define TSR_CONFIG_CONFIG_INTERNAL_H
#include "config/fields.h"

/* The nodes that the values came from, by row; NULL: the default. */
typedef struct tsr_config_origins {
  const tsr_yaml *values[TSR_FIELDS_MAX];
  const tsr_yaml *keys[TSR_FIELDS_MAX];
} tsr_config_origins;

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_config *config;
  tsr_config_origins *origins; /* config->origins, to be written */
  bool read_files;
} tsr_loader;

/* --- provenance.c --- */
/* What was given for "section.key" (or for another name of it), or NULL. */
const tsr_yaml *tsr_loader_value(const tsr_loader *loader, const char *dotted_key);
const tsr_yaml *tsr_loader_key(const tsr_loader *loader, const char *dotted_key);
/* What `from` gave where `to` was not given comes from there. */
void tsr_loader_take_origin(tsr_loader *loader, const char *to, const char *from);
/* The error, at `b`, that two keys which were given do not go together; returns false. */
bool tsr_loader_contradict(tsr_loader *loader, const char *a, const char *b);
/* Whether a key stands on the command line. */
bool tsr_is_override(const tsr_yaml *key);
/* The file beside which the files are that a value names; an override stands for the run's file. */
const char *tsr_loader_file_of(const tsr_loader *loader, const tsr_yaml *node);

/* --- scalar.c --- */
/* Checks a scalar against a row of a type from INT to BYTES and writes it into the row's member of
 * `config`, if it has one. `key` is the word to use in messages. */
bool tsr_scalar_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
/* The path that a scalar names: ${NAME} of the environment (what is not set stays as it is) and
 * URIs of files resolved. */
bool tsr_path_read(tsr_loader *loader, const tsr_yaml *node, const char **ret_path);
/* "'key' must be an integer, found …"; returns false. */
bool tsr_value_wrong_type(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
/* "unsupported feature: …" at the place; what stands behind a newline is a hint. */
bool tsr_value_unsupported(tsr_loader *loader, tsr_location location, const char *feature);

/* --- device_section.c --- */
/* As tsr_value_read, of the types SHAPE, IDS and AXES. */
bool tsr_shape_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
bool tsr_ids_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
bool tsr_axes_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);

/* --- resolve_moe_axis.c --- */
/* tt-train's moe_axis, moe_ep_axis and moe_tp_axis as names of the mesh's dimensions. */
void tsr_moe_axis_resolve(tsr_loader *loader);

/* --- field_read.c --- */
/* As tsr_scalar_read, of all types. */
bool tsr_value_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
/* Writes the defaults of all rows. */
void tsr_value_defaults(tsr_loader *loader);

/* --- section.c --- */
/* Reads all entries of a map as rows of a section; every unknown key is an error. */
void tsr_section_read(tsr_loader *loader, const char *section, const tsr_yaml *map);
/* Reads a multihost_config, wherever it stands; there may be one. */
void tsr_multihost_read(tsr_loader *loader, const tsr_yaml *key, const tsr_yaml *node);
/* The error of a key that a section does not have. */
void tsr_section_unknown(tsr_loader *loader, const char *section, const tsr_yaml *key);

/* --- pipeline_section.c --- */
/* As tsr_value_read, of the types STAGES and BLOCKS. */
bool tsr_stages_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
bool tsr_blocks_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
void tsr_pipeline_resolve(tsr_loader *loader);

/* --- data_section.c --- */
/* As tsr_value_read, of the type SOURCES. */
bool tsr_sources_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
/* The rules over the keys of data. */
void tsr_data_resolve(tsr_loader *loader);

/* --- lora_section.c --- */
/* As tsr_value_read, of the types NAMES and NUMBERS. */
bool tsr_names_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
bool tsr_numbers_read(
    tsr_loader *loader, const tsr_field *field, const char *key, const tsr_yaml *node);
void tsr_lora_resolve(tsr_loader *loader);

/* --- include.c --- */
/* Whether the row's section may stand in a file of its own, named by a path. */
bool tsr_section_has_file(const tsr_field *field);
/* Puts the contents of the files that sections are named by into the tree, once: no path is left.
 */
void tsr_include_files(tsr_loader *loader, tsr_yaml **root);
/* The name with ${NAME} taken from the environment; a variable that is not set stays as it is, and
 * `ret_unset` is its name, else NULL. */
char *tsr_include_expand(tsr_arena *arena, const char *name, const char **ret_unset);

/* --- synonyms.c --- */
/* Removes the file's keys from the tree that the command line sets by a synonym. */
void tsr_synonyms_replace(tsr_yaml *root);

/* --- model_section.c --- */
void tsr_model_section_read(tsr_loader *loader);

/* --- resolve_step.c --- */
/* How a step is computed: precision, loss scale, recompute, ZeRO. */
void tsr_step_resolve(tsr_loader *loader);

/* --- resolve_checkpoint.c --- */
void tsr_checkpoint_resolve(tsr_loader *loader);

/* --- resolve.c --- */
/* The rules over several keys: optimizer, schedule, mesh, clipping. */
void tsr_config_resolve(tsr_loader *loader);
/* Whether an optimizer reads the key of its section. */
bool tsr_optimizer_uses(tsr_optimizer_type type, const char *key);
/* Whether a curve reads the key of scheduler_config; true of keys that no curve shares. */
bool tsr_scheduler_uses(tsr_scheduler_type type, const char *key);

#endif
