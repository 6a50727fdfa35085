#include "cli.h"
#include "base/text.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char tsr_cli_help[] =
    "usage: tessera-train [train] --config FILE [options]\n"
    "       tessera-train check --config FILE [options]\n"
    "       tessera-train inspect (--config FILE | --mesh FILE)\n"
    "       tessera-train plan (--config FILE | --calibrate [FILE]) [--machine NAME|FILE] "
    "[--gantt] [--svg FILE]\n"
    "       tessera-train trace --config FILE [--rank R] [--emit WHAT] [options]\n"
    "       tessera-train profile --config FILE [--steps N] [--out DIR] [options]\n"
    "\n"
    "  train            checks, plans and trains (the default)\n"
    "  check            does all of it but train, and prints what was decided; no devices are "
    "used\n"
    "  inspect          prints the mesh, its axes and groups, and what each rank is\n"
    "  plan             prints what a step would cost on a machine: memory, work, communication, "
    "time\n"
    "  trace            prints the graph, the placed graph, and a rank's program and "
    "communication\n"
    "  profile          trains a few steps, says where their time goes and what would help, and "
    "writes\n"
    "                   trace.json, into DIR or the working directory\n"
    "\n"
    "  --config FILE    the training configuration (YAML)\n"
    "  --mesh FILE      the mesh descriptor (.textproto), instead of the configuration's\n"
    "  --set KEY=VALUE  sets a key of the configuration, e.g. training_config.batch_size=8; may be "
    "repeated\n"
    "  --metrics FILE   writes one JSON object a step to FILE\n"
    "  --out DIR        writes the resolved configuration and the metrics into DIR\n"
    "  --dump WHAT      prints stages of the plan: mesh,groups,graph,placement,program,memory\n"
    "  --machine WHAT   plan: a shipped machine (cpu, galaxy, h100, h200) or a file\n"
    "  --gantt          plan: draws the pipeline over time\n"
    "  --svg FILE       plan: the same as a picture\n"
    "  --calibrate [FILE]  plan: measures this machine and writes its description, into "
    "machine.yaml\n"
    "                   unless FILE is given; with --config the plan is for it\n"
    "  --rank R         trace: the rank, 0 unless given\n"
    "  --emit WHAT      trace: only graph-ir (both graphs) or schedule-ir (the program)\n"
    "  --steps N        profile: so many steps, after one to warm up; 5 unless given\n"
    "  --print-config   prints the configuration with all defaults and where each value came from\n"
    "  --print-schema   prints the JSON Schema of configuration files\n"
    "  --print-manual   prints the manual page's section of all keys (mdoc)\n"
    "  --quiet          prints errors only\n"
    "  --version, --help\n"
    "\n"
    "exit codes: 0 done, 2 your mistake, 1 the world's (file, disk, memory), 130 or 143 stopped by "
    "a signal\n";

static const char *const words[] = {
    "--config",       "--mesh",         "--set",          "--metrics", "--out",
    "--machine",      "--gantt",        "--svg",          "--calibrate",
    "--dump",         "--rank",         "--emit",         "--steps",   "--quiet",
    "--print-config", "--print-schema", "--print-manual", "--version", "--help"};
static const char *const dumps[] = {"mesh", "groups", "graph", "placement", "program", "memory"};
static const char *const emits[] = {"graph-ir", "schedule-ir"};

static bool *find_switch(tsr_cli *c, const char *word) {
  if (!strcmp(word, "--quiet")) return &c->quiet;
  if (!strcmp(word, "--gantt")) return &c->gantt;
  if (!strcmp(word, "--print-config")) return &c->print_config;
  if (!strcmp(word, "--print-schema")) return &c->print_schema;
  if (!strcmp(word, "--print-manual")) return &c->print_manual;
  if (!strcmp(word, "--version")) return &c->version;
  if (!strcmp(word, "--help") || !strcmp(word, "-h")) return &c->help;
  return NULL;
}

static const char **find_value(tsr_cli *c, const char *word) {
  if (!strcmp(word, "--config") || !strcmp(word, "-c")) return &c->config;
  if (!strcmp(word, "--mesh")) return &c->mesh;
  if (!strcmp(word, "--metrics")) return &c->metrics;
  if (!strcmp(word, "--out")) return &c->out;
  if (!strcmp(word, "--dump")) return &c->dump;
  if (!strcmp(word, "--machine")) return &c->machine;
  if (!strcmp(word, "--svg")) return &c->svg;
  if (!strcmp(word, "--calibrate")) return &c->calibration;
  if (!strcmp(word, "--rank")) return &c->rank_text;
  if (!strcmp(word, "--emit")) return &c->emit;
  if (!strcmp(word, "--steps")) return &c->steps_text;
  if (!strcmp(word, "--set") && c->sets_count < TSR_SETS_MAX) return &c->sets[c->sets_count++];
  return NULL;
}

static bool parse_command(tsr_cli *c, const char *word, tsr_diags *diags) {
  static const char *const commands[] = {"train", "check", "inspect", "trace", "profile", "plan"};
  const int count = sizeof commands / sizeof *commands;
  for (int i = 0; i < count; i++)
    if (!strcmp(word, commands[i])) return c->command = (tsr_command)i, true;
  tsr_diag_error(diags, TSR_NOWHERE, "there is no command '%s'", word);
  tsr_diag_nearest(diags, word, commands, count);
  return false;
}

/* One word (with the value after it or behind "="); advances *at. */
static void parse_option(int argc, char **argv, int *at, tsr_cli *c, tsr_diags *diags) {
  char name[64];
  const char *word = argv[*at], *equals = strchr(word, '=');
  size_t length = equals ? (size_t)(equals - word) : strlen(word);
  snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), word);
  bool *flag = find_switch(c, name);
  const char **value = flag ? NULL : find_value(c, name);
  if (flag && !equals) {
    *flag = true;
  } else if (flag) {
    tsr_diag_error(diags, TSR_NOWHERE, "%s takes no value", name);
  } else if (!value && !strcmp(name, "--set")) {
    tsr_diag_error(diags, TSR_NOWHERE, "more than %d --set", TSR_SETS_MAX);
  } else if (!value) {
    tsr_diag_error(diags, TSR_NOWHERE, "there is no option '%s'", name);
    tsr_diag_nearest(diags, name, words, sizeof words / sizeof *words);
    if (!equals && *at + 1 < argc && argv[*at + 1][0] != '-')
      ++*at; /* what seems to be its value */
  } else if (*value) {
    tsr_diag_error(diags, TSR_NOWHERE, "%s is given twice", name);
    *at += !equals;
  } else if (equals) {
    *value = equals + 1;
  } else if (value == &c->calibration && (*at + 1 == argc || argv[*at + 1][0] == '-')) {
    *value = "machine.yaml";
  } else if (*at + 1 < argc) {
    *value = argv[++*at];
  } else {
    *value = "";
    tsr_diag_error(diags, TSR_NOWHERE, "%s needs a value", name);
  }
}

static void check_list(
    const char *option, const char *list, const char *const *known_words, int count,
    tsr_diags *diags) {
  for (const char *at = list; at && *at;) {
    char word[32];
    size_t length = strcspn(at, ",");
    snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), at);
    bool known = false;
    for (int i = 0; i < count; i++) known |= !strcmp(word, known_words[i]);
    if (!known) {
      tsr_diag_error(diags, TSR_NOWHERE, "%s: there is nothing called '%s'", option, word);
      tsr_diag_nearest(diags, word, known_words, count);
    }
    at += length + (at[length] == ',');
  }
}

/* A whole number from `least` to what an int holds. */
static void check_number(
    const char *option, const char *text, int64_t least, int64_t *ret_value, tsr_diags *diags) {
  char *end;
  if (!text || !*text) return;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  bool whole = *end == 0 && *text >= '0' && *text <= '9';
  if (whole && !errno && value >= least && value <= INT_MAX) *ret_value = value;
  else
    tsr_diag_error(
        diags, TSR_NOWHERE, "%s: '%s' is no whole number from %lld to %d", option, text,
        (long long)least, INT_MAX);
}

/* Options that only one command has. */
static void check_owned(const tsr_cli *c, tsr_diags *diags) {
  const struct {
    const char *option, *value, *owner;
    tsr_command command;
  } owned[] = {
      {"--rank", c->rank_text, "trace", TSR_COMMAND_TRACE},
      {"--emit", c->emit, "trace", TSR_COMMAND_TRACE},
      {"--machine", c->machine, "plan", TSR_COMMAND_PLAN},
      {"--gantt", c->gantt ? "" : NULL, "plan", TSR_COMMAND_PLAN},
      {"--svg", c->svg, "plan", TSR_COMMAND_PLAN},
      {"--calibrate", c->calibration, "plan", TSR_COMMAND_PLAN},
      {"--steps", c->steps_text, "profile", TSR_COMMAND_PROFILE}};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
    if (owned[i].value && c->command != owned[i].command)
      tsr_diag_error(
          diags, TSR_NOWHERE, "%s belongs to the command '%s'", owned[i].option, owned[i].owner);
}

bool tsr_cli_parse(int argc, char **argv, tsr_cli *c, tsr_diags *diags) {
  *c = (tsr_cli){.command = TSR_COMMAND_TRAIN};
  bool command = false;
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-') {
      parse_option(argc, argv, &i, c, diags);
    } else if (!command) {
      command = true;
      parse_command(c, argv[i], diags);
    } else {
      tsr_diag_error(diags, TSR_NOWHERE, "unexpected argument '%s'", argv[i]);
    }
  }
  check_list("--dump", c->dump, dumps, sizeof dumps / sizeof *dumps, diags);
  check_list("--emit", c->emit, emits, sizeof emits / sizeof *emits, diags);
  check_number("--rank", c->rank_text, 0, &c->rank, diags);
  check_number("--steps", c->steps_text, 1, &c->steps, diags);
  check_owned(c, diags);
  if (c->machine && c->calibration)
    tsr_diag_error(
        diags, TSR_NOWHERE, "--machine and --calibrate both say which machine: one of the two");
  bool alone = c->help || c->version || c->print_schema || c->print_manual;
  bool mesh_only = c->command == TSR_COMMAND_INSPECT && c->mesh;
  bool without_config = mesh_only || (c->command == TSR_COMMAND_PLAN && c->calibration);
  if (!alone && !c->config && !without_config && !tsr_diags_errors(diags)) {
    tsr_diag_error(diags, TSR_NOWHERE, "no configuration: --config FILE is needed");
    tsr_diag_hint(diags, "tessera-train --help lists all options");
  }
  return !tsr_diags_errors(diags);
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (!strncmp(at, word, n) && (at[n] == ',' || !at[n])) return true;
  return false;
}

bool tsr_cli_dumps(const tsr_cli *c, const char *what) { return has_word(c->dump, what); }

bool tsr_cli_emits(const tsr_cli *c, const char *what) {
  return !c->emit || has_word(c->emit, what);
}
