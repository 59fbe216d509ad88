/* experiments/run/resume.h - the command that continues an interrupted run, printed
 * by a signal handler.   Threads: main() only, but for the handler. */
#ifndef RUN_RESUME_H
#define RUN_RESUME_H

/* Keep the command line of this program, as a shell reads it. */
void run_resume_remember(int argc, char **argv);
/* Another word that this command needs, unless it has it. */
void run_resume_add(const char *word);
/* For process_at_signal(): print it on standard error. */
void run_resume_report(int sig);

#endif
