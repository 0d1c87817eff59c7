// Package errcode maps errors of the cluster to statuses of gRPC, as clients of the Cloud Bigtable
// API expect them.
//
// These clients resend requests that fail with UNAVAILABLE, ABORTED or DEADLINE_EXCEEDED, and any
// request whose status has a RetryInfo, after the delay that it contains. So the status of an error
// depends on what was executed:
//
//	nothing was executed       UNAVAILABLE, ABORTED or RESOURCE_EXHAUSTED, with a RetryInfo if a
//	                           retry can help
//	the outcome is unknown     UNAVAILABLE if the request may be repeated (Repeatable), and
//	                           otherwise UNKNOWN, without a RetryInfo
//	the request is wrong       INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION and so on
//
// # Departures from Google's service
//
// Google's service answers DEADLINE_EXCEEDED for a change whose outcome is unknown. Its clients
// resend that only if they know the change to be idempotent; programs that were written against other
// clients may not. Here UNKNOWN names the case.
//
// # Invariants
//
//	GE1. A request that is not repeatable and may have been executed gets no status that clients
//	     resend.
//	GE2. Only statuses of requests of which nothing was executed, or that are repeatable, have a
//	     RetryInfo.
//	GE3. The text of a status is the text of the error, without bytes that are not UTF-8.
package errcode
