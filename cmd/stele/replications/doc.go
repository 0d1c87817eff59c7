// Package replications has the command replication.
package replications
