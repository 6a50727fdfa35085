/* The command line. */
#ifndef TSR_CLI_H
#define TSR_CLI_H
#include "base/diag.h"
#include <stdint.h>

typedef enum {
  TSR_COMMAND_TRAIN,
  TSR_COMMAND_CHECK,
  TSR_COMMAND_INSPECT,
  TSR_COMMAND_TRACE,
  TSR_COMMAND_PROFILE,
  TSR_COMMAND_PLAN
} tsr_command;

enum { TSR_SETS_MAX = 64 };
typedef struct {
  tsr_command command;
  const char *config, *mesh, *metrics, *out;
  const char *sets[TSR_SETS_MAX];
  int sets_count;
  const char *dump; /* comma-separated: mesh,groups,graph,placement,program,memory; NULL: nothing */
  const char *rank_text, *emit, *steps_text; /* of trace and profile; NULL: not given */
  int64_t rank, steps;                       /* steps 0: not given */
  const char *machine, *svg;                 /* of plan; NULL: not given */
  const char *calibration;                   /* the file for --calibrate; NULL: not given */
  bool gantt;
  bool quiet, print_config, print_schema, print_manual, version, help;
} tsr_cli;

/* All mistakes of the line in one run; --help and --version ask for nothing else. */
bool tsr_cli_parse(int argc, char **argv, tsr_cli *ret_cli, tsr_diags *diags);
/* Whether `what` is in the --dump list. */
bool tsr_cli_dumps(const tsr_cli *cli, const char *what);
/* Whether `what` is in the --emit list; everything is without one. */
bool tsr_cli_emits(const tsr_cli *cli, const char *what);
extern const char tsr_cli_help[];

#endif
