// Package backups has the command backup: backups of tables inside the cluster (package node/backups), and in a
// directory or bucket outside it (package internal/backupdir).
package backups
