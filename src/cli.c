#include "cli.h"
#include "base/text.h"
#include <string.h>

const char tsr_cli_help[] =
    "usage: tessera-train [train] --config FILE [options]\n"
    "       tessera-train check --config FILE [options]\n"
    "       tessera-train inspect (--config FILE | --mesh FILE)\n"
    "\n"
    "  train            checks, plans and trains (the default)\n"
    "  check            does all of it but train, and prints what was decided; no devices are "
    "used\n"
    "  inspect          prints the mesh, its axes and groups, and what each rank is\n"
    "\n"
    "  --config FILE    the training configuration (YAML)\n"
    "  --mesh FILE      the mesh descriptor (.textproto), instead of the configuration's\n"
    "  --set KEY=VALUE  sets a key of the configuration, e.g. training_config.batch_size=8; may be "
    "repeated\n"
    "  --metrics FILE   writes one JSON object a step to FILE\n"
    "  --out DIR        writes the resolved configuration and the metrics into DIR\n"
    "  --dump WHAT      prints stages of the plan: mesh,groups,graph,placement,program,memory\n"
    "  --print-config   prints the configuration with all defaults and where each value came from\n"
    "  --print-schema   prints the JSON Schema of configuration files\n"
    "  --print-manual   prints the manual page's section of all keys (mdoc)\n"
    "  --quiet          prints errors only\n"
    "  --version, --help\n"
    "\n"
    "exit codes: 0 done, 2 your mistake, 1 the world's (file, disk, memory), 130 or 143 stopped by "
    "a signal\n";

static const char *const words[] = {
    "--config", "--mesh",         "--set",          "--metrics",      "--out",     "--dump",
    "--quiet",  "--print-config", "--print-schema", "--print-manual", "--version", "--help"};
static const char *const dumps[] = {"mesh", "groups", "graph", "placement", "program", "memory"};

static bool *find_switch(tsr_cli *c, const char *word) {
  if (!strcmp(word, "--quiet")) return &c->quiet;
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
  if (!strcmp(word, "--set") && c->sets_count < TSR_SETS_MAX) return &c->sets[c->sets_count++];
  return NULL;
}

static bool parse_command(tsr_cli *c, const char *word, tsr_diags *diags) {
  static const char *const commands[] = {"train", "check", "inspect"};
  for (int i = 0; i < 3; i++)
    if (!strcmp(word, commands[i])) return c->command = (tsr_command)i, true;
  tsr_diag_error(diags, TSR_NOWHERE, "there is no command '%s'", word);
  tsr_diag_nearest(diags, word, commands, 3);
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
  } else if (*at + 1 < argc) {
    *value = argv[++*at];
  } else {
    *value = "";
    tsr_diag_error(diags, TSR_NOWHERE, "%s needs a value", name);
  }
}

static void check_dumps(const tsr_cli *c, tsr_diags *diags) {
  for (const char *at = c->dump; at && *at;) {
    char word[32];
    size_t length = strcspn(at, ",");
    snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), at);
    bool known = false;
    for (size_t i = 0; i < sizeof dumps / sizeof *dumps; i++) known |= !strcmp(word, dumps[i]);
    if (!known) {
      tsr_diag_error(diags, TSR_NOWHERE, "--dump: there is nothing called '%s'", word);
      tsr_diag_nearest(diags, word, dumps, sizeof dumps / sizeof *dumps);
    }
    at += length + (at[length] == ',');
  }
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
  check_dumps(c, diags);
  bool alone = c->help || c->version || c->print_schema || c->print_manual;
  bool mesh_only = c->command == TSR_COMMAND_INSPECT && c->mesh;
  if (!alone && !c->config && !mesh_only && !tsr_diags_errors(diags)) {
    tsr_diag_error(diags, TSR_NOWHERE, "no configuration: --config FILE is needed");
    tsr_diag_hint(diags, "tessera-train --help lists all options");
  }
  return !tsr_diags_errors(diags);
}

bool tsr_cli_dumps(const tsr_cli *c, const char *what) {
  size_t n = strlen(what);
  for (const char *at = c->dump; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (!strncmp(at, what, n) && (at[n] == ',' || !at[n])) return true;
  return false;
}
