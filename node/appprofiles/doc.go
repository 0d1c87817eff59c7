// Package appprofiles keeps the app profiles of Cloud Bigtable's API: for each program that uses the cluster a name, and how its requests are routed.
// The paper does not describe them.
//
// A profile is a file of the lock service, /profiles/ID, whose format is that of record. The profile "default" has a file only if it was changed. Every
// instance name of the API is a name of the same tables (package gateway/names), so the profiles are those of all instances. Google's service stores up to
// 2,000 in an instance; here they are metrics labels, too, and 100 at most.
//
// The package starts no goroutine.
//
// # Invariants
//
//	PF1. The profile "default" exists.
//	PF2. A change with an etag is made only if the profile has it. Equal etags mean equal profiles.
//	PF3. A file that cannot be decoded is reported in the log, and its profile does not exist; the others do.
package appprofiles
