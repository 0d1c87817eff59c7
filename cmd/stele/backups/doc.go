// Package backups has the command backup: backups of tables inside the cluster (package node/backups).
package backups
