/* plan/plan_json.h - what reading and writing a plan's file share; not for others. */
#ifndef PLAN_PLAN_JSON_H
#define PLAN_PLAN_JSON_H

#define PLAN_VERSION 2 /* keys may be added to it; one that is missing means "unknown" */

#endif
