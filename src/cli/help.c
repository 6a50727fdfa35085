// SPDX-License-Identifier: Apache-2.0
/* What --help prints: of the program, or of one command. */
#include "cli/command_mask.h"
#include <stdio.h>

#define ALL (~0u)

typedef struct {
  unsigned commands;
  const char *text;
} entry;

static const entry usages[] = {
    {ONLY(TRAIN), "tessera-train [train] --config FILE [--resume [CHECKPOINT]] [options]\n"},
    {ONLY(CHECK),
     "tessera-train check --config FILE [--prove [--full-mesh]] [--svg DIR] [options]\n"},
    {ONLY(INSPECT), "tessera-train inspect (--config FILE | --mesh FILE)\n"},
    {ONLY(PLAN), "tessera-train plan (--config FILE | --calibrate [FILE]) [--machine NAME|FILE] "
                 "[--gantt] [--svg DIR]\n"},
    {ONLY(TRACE), "tessera-train trace --config FILE [--rank R] [--emit WHAT] [options]\n"},
    {ONLY(TRACE), "tessera-train trace --config FILE --save DIR [--tensors REGEX] [--steps A-B]\n"},
    {ONLY(PROFILE), "tessera-train profile --config FILE [--steps N] [--out DIR] [options]\n"},
    {ONLY(EVALUATE),
     "tessera-train evaluate --checkpoint DIR [--adapter DIR] [--data FILE] [options]\n"},
    {ONLY(EVALUATE), "tessera-train evaluate --checkpoint DIR --eval-set FILE… [--shots N "
                     "--shots-file FILE] [options]\n"},
    {ONLY(GENERATE), "tessera-train generate --checkpoint DIR [--adapter DIR] (--prompt TEXT | "
                     "--prompt-file FILE | "
                     "--chat FILE) [options]\n"},
    {ONLY(SERVE), "tessera-train serve --checkpoint DIR [--adapter DIR] [--port N] [options]\n"},
    {ONLY(CHECKPOINT), "tessera-train checkpoint (ls | show | verify) DIR\n"},
    {ONLY(CHECKPOINT), "tessera-train checkpoint diff DIR DIR\n"},
    {ONLY(CHECKPOINT), "tessera-train checkpoint (merge | reshard) DIR --out DIR [--shards N]\n"},
    {ONLY(IMPORT), "tessera-train import FOLDER --out DIR\n"},
    {ONLY(EXPORT),
     "tessera-train export DIR --out FOLDER [--adapter DIR | --merge] [--dtype f32|bf16|f16]\n"},
    {ONLY(EXPORT),
     "tessera-train export DIR --format gguf --out FILE [--adapter DIR | --merge] [--dtype "
     "WHAT]\n"},
    {ONLY(TOKENIZE),
     "tessera-train tokenize INPUT… --out FILE [--overwrite] [--tokenizer FILE|byte|char] "
     "[--format WHAT]\n"},
    {ONLY(DATA), "tessera-train data show --config FILE [--sample N] [--split train|validation]\n"},
    {ONLY(KERNELS), "tessera-train kernels [--bench] [--threads N] [--filter TEXT]\n"},
    {ONLY(DOCTOR), "tessera-train doctor [--topology]\n"},
    {ONLY(VERIFY), "tessera-train verify (DIR | FILE) [--steps A-B] [--set KEY=VALUE]\n"},
    {ONLY(COMPARE), "tessera-train compare A B [--steps N] [--set KEY=VALUE]\n"},
    {ONLY(REPORT), "tessera-train report (DIR | FILE)… --html FILE [--machine NAME|FILE]\n"},
    {ONLY(WATCH),
     "tessera-train watch (DIR | FILE)… [--port N] [--host NAME] [--machine NAME|FILE]\n"},
    {ONLY(SWEEP), "tessera-train sweep --config FILE --out DIR [--set KEY=[A,B]]… [--random N] "
                  "[--jobs N] [options]\n"},
    {ONLY(LOCK), "tessera-train lock diff (DIR | FILE) (DIR | FILE)\n"},
};

static const entry summaries[] = {
    {ONLY(TRAIN), "  train            checks, plans and trains (the default)\n"},
    {ONLY(CHECK), "  check            does all of it but train, and prints what was decided; no "
                  "devices are used\n"},
    {ONLY(INSPECT),
     "  inspect          prints the mesh, its axes and groups, and what each rank is\n"},
    {ONLY(PLAN), "  plan             prints what a step would cost on a machine: memory, work, "
                 "communication, time\n"},
    {ONLY(TRACE), "  trace            prints the graph, the placed graph, and a rank's program and "
                  "communication\n"},
    {ONLY(PROFILE),
     "  profile          trains a few steps, reports where their time goes and what would "
     "help, and writes\n"
     "                   trace.json, into DIR or the working directory\n"},
    {ONLY(EVALUATE),
     "  evaluate         prints the loss, perplexity and bits per byte of a checkpoint "
     "over data, or scores on sets\n"
     "                   of questions, completions and texts\n"},
    {ONLY(GENERATE), "  generate         writes text that resumes from prompts\n"},
    {ONLY(SERVE),
     "  serve            answers requests of OpenAI's API over HTTP, many at once, and "
     "has a page to chat\n"},
    {ONLY(CHECKPOINT),
     "  checkpoint       lists, shows, verifies and compares checkpoints; merge writes "
     "one file of whole\n"
     "                   tensors, reshard as many files as --shards sets\n"},
    {ONLY(IMPORT) | ONLY(EXPORT),
     "  import, export   from and to a model folder of Hugging Face (config.json, "
     "*.safetensors)\n"},
    {ONLY(TOKENIZE), "  tokenize         turns text or JSONL into a file of tokens\n"},
    {ONLY(DATA),
     "  data show        prints a sample of the training data, its documents, positions "
     "and targets, and what\n"
     "                   the data consist of\n"},
    {ONLY(KERNELS),
     "  kernels          lists the instruction-set levels and the kernels; with --bench "
     "measures each\n"
     "                   kernel beside what this machine can do at most (numerics.isa: "
     "which level)\n"},
    {ONLY(DOCTOR),
     "  doctor           reports what of this machine can be used: cores, MPI, driver, GPUs, "
     "NCCL; found, missing\n"
     "                   or mismatched, and what to do about it\n"},
    {ONLY(VERIFY),
     "  verify           repeats steps of a run from its nearest checkpoint, on one rank unless "
     "--set or --mesh\n"
     "                   lays out ranks, and compares losses and weights with its run.lock\n"},
    {ONLY(COMPARE),
     "  compare          finds the first tensor in which two recipes, runs, checkpoints or files "
     "of tensors differ,\n"
     "                   and the keys of their recipes that do\n"},
    {ONLY(REPORT),
     "  report           writes runs as one page: curves, differences, memory, communication, "
     "pipeline, samples;\n"
     "                   a folder of --out has all of it, a file of --metrics the curves\n"},
    {ONLY(WATCH), "  watch            serves that page, which follows the runs while they train; "
                  "of a folder all "
                  "runs in it,\n"
                  "                   also those that begin later\n"},
    {ONLY(SWEEP),
     "  sweep            trains a run for each combination of values, or some of them, several at "
     "a time, and\n"
     "                   compares their losses; an interrupted sweep is continued\n"},
    {ONLY(LOCK),
     "  lock diff        prints what differs between the recipes, machines and steps of two runs' "
     "run.lock\n"},
};

static const entry options[] = {
    {CONFIGURED | ONLY(KERNELS), "  --config FILE    the training configuration (YAML)\n"},
    {CONFIGURED | ONLY(VERIFY),
     "  --mesh FILE      the mesh descriptor (.textproto), instead of the "
     "configuration's\n"},
    {CONFIGURED | ONLY(VERIFY) | ONLY(KERNELS),
     "  --set KEY=VALUE  sets a key of the configuration, e.g. "
     "training_config.batch_size=8; may be repeated\n"},
    {ONLY(TRAIN) | ONLY(CHECK) | ONLY(PROFILE),
     "  --metrics FILE   writes one JSON object a step to FILE\n"},
    {ONLY(SWEEP), "  --out DIR        sweep: the folder of the table and of the runs' folders\n"},
    {ONLY(TRAIN) | ONLY(CHECK) | ONLY(PROFILE),
     "  --out DIR        writes the resolved configuration, the metrics and checkpoints "
     "into DIR\n"},
    {ONLY(TRAIN) | ONLY(PROFILE),
     "  --overwrite      train, profile: begins anew in a folder that has a run's "
     "results, which are lost\n"},
    {ONLY(TOKENIZE),
     "  --overwrite      tokenize: replaces an output file whose content does not tell its "
     "format\n"},
    {COMPILED, "  --dump WHAT      prints stages of the plan: "
               "mesh,groups,graph,placement,program,memory\n"},
    {ONLY(TRAIN),
     "  --resume [CHECKPOINT]  train: resumes from the newest checkpoint, or from this "
     "one\n"},
    {ONLY(TRAIN),
     "  --fork CHECKPOINT  train: begins with the state of another run that differs in learning "
     "rates behind it alone\n"},
    {ONLY(TRAIN),
     "  --locked FILE    train: another run's run.lock: any other recipe is refused, and the run "
     "stops at the first\n"
     "                   step that differs\n"},
    {ONLY(TRAIN), "  --check-determinism N  train: trains N steps twice, with other threads, "
                  "instead of a run, and "
                  "compares\n"
                  "                   what every collective gives\n"},
    {ONLY(TRAIN),
     "  --dump-grads DIR  train: writes the gradients of every step, before clipping, into "
     "DIR/step-N.safetensors\n"},
    {ONLY(TRAIN),
     "  --record-routing DIR  train: writes the experts that each token chooses in every step "
     "into DIR/routing-N.safetensors\n"},
    {ONLY(TRAIN),
     "  --replay-routing DIR  train: takes the experts of each token from there, on any mesh\n"},
    {ONLY(TRAIN),
     "  --tensorboard DIR  train: writes TensorBoard's event files into DIR: the metrics, the "
     "recipe, the graph, samples\n"
     "  --tensorboard-histograms REGEX  train: and the distributions of the weights whose name has "
     "a match, and of\n"
     "                   their gradients\n"
     "  --tensorboard-every N  train: these of every N-th step; 100 unless given\n"},
    {ONLY(TRAIN) | ONLY(WATCH), "  --tui            train, watch: a picture of the run on the "
                                "terminal; plain lines where there "
                                "is none\n"},
    {ONLY(TRAIN), "  --time-limit T   train: ends with a checkpoint before T is over: seconds, or "
                  "1h30m\n"},
    {ONLY(TRAIN),
     "  --stop-at STEP   train: ends after that step with a checkpoint; the recipe stays that "
     "of the whole run\n"},
    {ONLY(CHECK),
     "  --prove          check: trains two steps of a reduced model on a reduced mesh and "
     "on one rank, and\n"
     "                   compares their bits, and the loss and gradients with the "
     "interpreter; no data are read\n"},
    {ONLY(CHECK), "  --full-mesh      check --prove: keeps the sizes of all mesh axes\n"},
    {ONLY(SWEEP),
     "  --set KEY=VALUES sweep: several values make runs: [1e-3,3e-4], 1..3, with --random "
     "also uniform(0,1) and\n"
     "                   log_uniform(1e-5,1e-3); KEY may be the end of a key: lr, seed\n"
     "  --random N       sweep: N runs of values that are drawn, not all combinations\n"
     "  --sweep-seed S   sweep: of the draws; 0 unless given\n"
     "  --jobs N         sweep: so many runs at a time, which share the threads; 1 unless "
     "given\n"
     "  --launcher TEXT  sweep: begins the command of each run, such as 'mpirun -n 4'\n"},
    {ONLY(REPORT),
     "  --html FILE      report: the page, which needs no other file and no network\n"},
    {ONLY(PLAN) | ONLY(REPORT) | ONLY(WATCH) | ONLY(CHECK),
     "  --machine WHAT   plan, report, watch, check --svg: a shipped machine (blackhole, cpu, "
     "galaxy, h100, h200) or a file\n"},
    {ONLY(PLAN), "  --gantt          plan: draws the pipeline over time\n"},
    {ONLY(PLAN) | ONLY(CHECK),
     "  --svg DIR        plan, check: writes pictures: memory.svg, mesh.svg, pipeline.svg, "
     "communication.svg\n"},
    {ONLY(PLAN),
     "  --calibrate [FILE]  plan: measures this machine and writes its description, into "
     "machine.yaml\n"
     "                   unless FILE is given; with --config the plan is for it\n"},
    {ONLY(INSPECT), "  --tensor NAME    inspect: the part of a tensor that each rank holds, "
                    "its type and bytes\n"},
    {ONLY(TRACE), "  --rank R         trace: the rank, 0 unless given\n"},
    {ONLY(TRACE), "  --emit WHAT      trace: only graph-ir (both graphs), schedule-ir (the "
                  "program) or tile-ir (the\n"
                  "                   grid, block and warps of each task's kernels)\n"},
    {ONLY(TRACE), "  --save DIR       trace: runs the steps and writes the tensors of each into "
                  "DIR/step-N.safetensors\n"},
    {ONLY(TRACE),
     "  --tensors REGEX  trace --save: those whose name has a match; all unless given\n"},
    {ONLY(TRACE), "  --steps A-B      trace --save: these steps; the first unless given\n"},
    {ONLY(COMPARE), "  --steps N        compare: so many steps of a recipe; 10 unless given\n"},
    {ONLY(VERIFY), "  --steps A-B      verify: these steps; all unless given\n"},
    {ONLY(PROFILE),
     "  --steps N        profile: so many steps, after one to warm up; 5 unless given\n"},
    {ONLY(EVALUATE) | ONLY(GENERATE) | ONLY(SERVE),
     "  --checkpoint DIR evaluate, generate, serve: a checkpoint, a run's folder (its newest), "
     "or an imported model;\n"
     "                   on one rank, unless --config or --set sets another mesh\n"},
    {ONLY(EVALUATE) | ONLY(GENERATE) | ONLY(SERVE) | ONLY(EXPORT),
     "  --adapter DIR    evaluate, generate, serve, export: adapters in PEFT's format for the "
     "model, "
     "which export merges\n"
     "                   into it\n"},
    {ONLY(EVALUATE),
     "  --data FILE      evaluate: text or tokens; the configuration's validation data "
     "unless given\n"},
    {ONLY(EVALUATE),
     "  --eval-set FILE  evaluate: lines of JSON with a question, its choices and the answer; "
     "a "
     "prompt and its\n"
     "                   completion; or a text; may be repeated\n"
     "  --last-word      evaluate --eval-set: the last word of a text is its completion\n"
     "  --context-template TEXT  evaluate --eval-set: a Jinja template that makes the context "
     "of a "
     "line's keys\n"
     "  --delimiter TEXT evaluate --eval-set: between context and choice; a space unless "
     "given\n"
     "  --shots N, --shots-file FILE, --shots-delimiter TEXT, --seed N\n"
     "                   evaluate --eval-set: N lines of FILE with their answers before each "
     "context; two newlines\n"
     "                   follow each unless TEXT is given\n"
     "  --apply-chat-template  evaluate --eval-set: the context becomes a message to the "
     "model\n"
     "  --max-length N   evaluate --eval-set: tokens that the model reads at most; "
     "max_sequence_length unless given\n"
     "  --out FILE       evaluate --eval-set, or of labels: writes the results as JSON\n"
     "  --log-samples FILE  evaluate --eval-set, or of labels: writes a line of JSON for each "
     "line "
     "of a set, or each text\n"},
    {ONLY(GENERATE), "  --prompt TEXT    generate: may be repeated\n"},
    {ONLY(GENERATE), "  --prompt-file F  generate: one prompt a line\n"},
    {ONLY(GENERATE),
     "  --chat FILE      generate: a conversation, [{\"role\": \"user\", \"content\": "
     "\"…\"}]\n"},
    {ONLY(GENERATE),
     "  --max-new-tokens N, --temperature X, --top-k N, --top-p X, --repetition-penalty "
     "X, --seed N\n"
     "                   generate: as in eval_config\n"},
    {ONLY(SERVE) | ONLY(WATCH), "  --host NAME, --port N  serve, watch: where it listens; "
                                "127.0.0.1, and 8000 or 8008 unless "
                                "given; 0: any\n"
                                "                   port, which is printed\n"},
    {ONLY(SERVE), "  --token TEXT     serve: what clients must send as a bearer token; else "
                  "TESSERA_SERVE_TOKEN, if it is set\n"},
    {ONLY(SERVE), "  --model-name TEXT  serve: the model's name in requests; the checkpoint's "
                  "folder unless given\n"},
    {ONLY(SERVE), "  --context N      serve: tokens of a prompt and its answer; the model's "
                  "positions unless given\n"},
    {TEXTS | ONLY(EVALUATE), "  --weights TYPE   evaluate, generate, serve: weights of linear "
                             "layers quantised to int8 or "
                             "nf4 as they are\n"
                             "                   loaded; the bits are not the model's own\n"},
    {TEXTS, "  --max-batch N    generate, serve: texts that are continued at once (16)\n"},
    {TEXTS, "  --cache-pages N  generate, serve: pages of 16 tokens in the key/value cache, which "
            "these texts share;\n"
            "                   as many as all of them can need unless given\n"},
    {ONLY(SERVE), "  --max-queue N    serve: texts that may wait (256)\n"},
    {ONLY(SERVE), "  --max-body N, --timeout T  serve: bytes of a request (1048576), and the time "
                  "that it may take (10m)\n"},
    {ONLY(DATA),
     "  --sample N       data show: the sample, counted from 0 in the order in which the "
     "run reads them; 0 unless given\n"},
    {ONLY(DATA), "  --split WHAT     data show: train (the default) or validation\n"},
    {ONLY(CHECKPOINT), "  --shards N       checkpoint reshard: files of tensors\n"},
    {ONLY(EXPORT),
     "  --format WHAT    export: hf (a folder, the default) or gguf (a file for llama.cpp)\n"},
    {ONLY(EXPORT), "  --dtype WHAT     export: f32, bf16 or f16, to GGUF also q8_0 and q4_k_m; as "
                   "stored unless given\n"},
    {ONLY(EXPORT),
     "  --merge          export: a run's adapters merged into their model; else they become a "
     "folder in PEFT's format\n"},
    {ONLY(TOKENIZE),
     "  --tokenizer WHAT tokenize: a tokenizer.json, a file of characters, byte (the "
     "default) or char\n"},
    {ONLY(TOKENIZE), "  --format WHAT    tokenize: llmc (the default), nanogpt or megatron\n"},
    {ONLY(TOKENIZE),
     "  --jsonl-key KEY  tokenize: whose text a line of a .jsonl file holds; text unless "
     "given\n"},
    {ONLY(TOKENIZE),
     "  --skip-bad-lines  tokenize: lines of JSONL without a text are counted, not an "
     "error\n"},
    {ONLY(TOKENIZE) | ONLY(KERNELS),
     "  --threads N      tokenize: threads; all cores unless given. kernels: one unless "
     "given\n"},
    {ONLY(KERNELS), "  --bench          kernels: measures them; takes half a minute or more\n"},
    {ONLY(KERNELS), "  --filter TEXT    kernels: only those whose name has TEXT in it\n"},
    {ONLY(DOCTOR),
     "  --topology       doctor: prints a mesh descriptor of this host's GPUs instead, "
     "for --mesh\n"},
    {CONFIGURED,
     "  --print-config   prints the configuration with all defaults and where each value "
     "came from\n"},
    {CONFIGURED, "  --print-schema   prints the JSON Schema of configuration files\n"},
    {CONFIGURED, "  --print-manual   prints the manual page's section of all keys (mdoc)\n"},
    {CONFIGURED, "  --strict         what breaks the recipe is an error: keys without effect, "
                 "no seed, sums in "
                 "a mesh's own\n"
                 "                   order; advice stays a note\n"},
    {ALL, "  --progress WHEN  of what takes long, on standard error: auto (on a terminal, after 2 "
          "seconds),\n                   never, or SECONDS: after so many; without a terminal a "
          "line "
          "every SECONDS\n"},
    {ALL, "  --quiet          prints errors only\n"},
    {ALL, "  --version, --help\n"},
};
static const char endings[] =
    "signals: SIGUSR1 writes a checkpoint after the step, SIGINT and SIGTERM one before "
    "the end\n"
    "exit codes: 0 done, 2 your mistake, 1 the world's (file, disk, memory), 130 or 143 "
    "stopped by a signal\n";

static void print(const entry *entries, size_t count, unsigned commands, const char *before) {
  const char *at = before;
  for (size_t i = 0; i < count; i++) {
    if (!(entries[i].commands & commands)) continue;
    printf("%s%s", at, entries[i].text);
    at = *before == 'u' ? "       " : before;
  }
}

void tsr_options_print_help(const tsr_options *o) {
  unsigned commands = o->names_command ? 1u << o->command : ALL;
  print(usages, sizeof usages / sizeof *usages, commands, "usage: ");
  printf("\n");
  print(summaries, sizeof summaries / sizeof *summaries, commands, "");
  printf("\n");
  print(options, sizeof options / sizeof *options, commands, "");
  printf("\n%s", endings);
}
