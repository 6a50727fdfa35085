// SPDX-License-Identifier: Apache-2.0
/* The command line. */
#ifndef TSR_CLI_OPTIONS_H
#define TSR_CLI_OPTIONS_H
#include "base/text.h"
#include "config/config.h"
#include <stdint.h>

typedef enum {
  TSR_COMMAND_TRAIN,
  TSR_COMMAND_CHECK,
  TSR_COMMAND_INSPECT,
  TSR_COMMAND_TRACE,
  TSR_COMMAND_PROFILE,
  TSR_COMMAND_PLAN,
  TSR_COMMAND_EVALUATE,
  TSR_COMMAND_GENERATE,
  TSR_COMMAND_CHECKPOINT,
  TSR_COMMAND_IMPORT,
  TSR_COMMAND_EXPORT,
  TSR_COMMAND_TOKENIZE,
  TSR_COMMAND_DATA,
  TSR_COMMAND_KERNELS,
  TSR_COMMAND_DOCTOR,
  TSR_COMMAND_VERIFY,
  TSR_COMMAND_LOCK,
  TSR_COMMAND_COMPARE,
  TSR_COMMAND_SERVE,
  TSR_COMMAND_REPORT,
  TSR_COMMAND_WATCH,
  TSR_COMMAND_SWEEP,
  TSR_COMMANDS
} tsr_command;

/* An option's words, in the order of the line. */
enum { TSR_WORDS_MAX = 256, TSR_SETS_MAX = TSR_WORDS_MAX + 16 /* that commands add */ };
typedef struct {
  const char *items[TSR_WORDS_MAX];
  int count;
} tsr_words;

/* NULL and 0: not given. */
typedef struct {
  tsr_command command;
  bool names_command; /* else it is the default */
  const char *config, *mesh, *metrics, *out;
  tsr_set sets[TSR_SETS_MAX]; /* --set, and options that stand for a key */
  int sets_count;
  tsr_words arguments; /* of checkpoint and data (their own command first), import, … */
  const char *dump;    /* comma-separated: mesh,groups,graph,placement,program,memory */
  const char *progress_text;
  double progress_s; /* < 0: auto */
  bool no_progress;
  bool quiet, strict, print_config, print_schema, print_manual, version, help;
  /* train */
  const char *dump_grads, *record_routing, *replay_routing, *determinism_text;
  int64_t determinism; /* steps */
  const char *tensorboard, *histograms, *histograms_every_text;
  int64_t histograms_every; /* 0: not given */
  const char *resume;       /* "": the newest */
  const char *fork;
  const char *locked;
  bool overwrite; /* and profile, tokenize */
  bool tui;       /* and watch */
  const char *time_limit_text;
  double time_limit_s;
  const char *stop_at_text;
  int64_t stop_at; /* a step; 0: not given */
  /* trace, profile */
  const char *tensor; /* inspect */
  const char *save, *tensors;
  const char *rank_text, *emit, *steps_text;
  int64_t rank, steps;
  int64_t first_step, last_step; /* --steps of verify and trace; 0: not given */
  /* check */
  bool prove, full_mesh;
  const char *svg; /* and plan: the folder of pictures */
  /* plan */
  const char *machine, *calibration; /* calibration: the file for --calibrate */
  bool gantt;
  /* report */
  const char *html;
  /* sweep */
  const char *jobs_text, *random_text, *sweep_seed_text, *launcher;
  int64_t jobs, random_runs, sweep_seed; /* 0: not given */
  /* data */
  const char *sample_text, *split;
  int64_t sample;
  /* evaluate, generate */
  const char *checkpoint, *data;
  tsr_words prompts;
  const char *prompt_file, *chat;
  const char *adapter; /* and export */
  const char *weights; /* evaluate, generate, serve: nf4, int8; NULL: as they are */
  const char *max_batch_text, *cache_pages_text; /* generate, serve */
  int64_t max_batch, cache_pages;                /* 0: not given */
  /* serve; host and port: watch, too */
  const char *host, *token, *model_name, *timeout_text;
  const char *port_text, *max_queue_text, *max_body_text, *context_text;
  int64_t port, max_queue, max_body, context;
  double timeout_s;
  /* evaluate --eval-set */
  tsr_words eval_sets;
  bool last_word, apply_chat_template;
  const char *context_template, *delimiter, *shots_text, *shots_file, *shots_delimiter;
  const char *max_length_text, *log_samples;
  int64_t shots, max_length;
  /* checkpoint reshard, export */
  bool merge;
  const char *shards_text, *dtype;
  int64_t shards;
  /* kernels */
  bool bench;
  const char *filter;
  /* doctor */
  bool topology;
  /* tokenize; threads: kernels, too */
  const char *tokenizer, *format, *jsonl_key, *threads_text;
  bool skip_bad_lines;
  int64_t threads;
} tsr_options;

/* All mistakes of the line in one run; --help and --version ask for nothing else. Options that
 * stand for a key of the configuration (--temperature) become a --set of it. */
bool tsr_options_parse(
    tsr_arena *arena, int argc, char **argv, tsr_options *ret_options, tsr_diags *diags);
/* A line for each option of the command in which the processes of a job may not differ: all but
 * those of the configuration, of files whose content is compared, and of what is shown. */
void tsr_options_print_shared(const tsr_options *options, tsr_text *text);
const char *tsr_command_name(tsr_command command);
/* Whether `what` is in the --dump list. */
bool tsr_options_dump(const tsr_options *options, const char *what);
/* Whether `what` is in the --emit list; everything is without one. */
bool tsr_options_emit(const tsr_options *options, const char *what);
/* To the standard output: of all, or of the command that is named. */
void tsr_options_print_help(const tsr_options *options);

#endif
