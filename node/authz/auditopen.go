package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/security/audit"
)

// auditFolder is below the folder of keys.
const auditFolder = "audit"

// OpenAudit opens the audit log of a node. Security is the node's directory of keys in fsys; if it is empty, there is no audit log. If sink is not
// empty, records are also sent to that sink.
func (z *Authorizer) OpenAudit(fsys vfs.FS, security, node, sink string, log *slog.Logger) error {
	if security == "" {
		return nil
	}
	log = log.With("part", "audit")
	cfg := audit.Config{FS: fsys, Dir: filepath.Join(security, auditFolder), Node: node, Logger: log}
	var err error
	if sink != "" {
		if cfg.Sink, err = audit.OpenSink(sink); err != nil {
			return fmt.Errorf("open the audit log's second sink: %w", err)
		}
	}
	to, err := audit.Open(cfg)
	if err != nil {
		if cfg.Sink != nil {
			err = errors.Join(err, cfg.Sink.Close())
		}
		return fmt.Errorf("open the audit log: %w", err)
	}
	z.Audit = &AuditLog{To: to, Log: log, IsAdmin: z.AdministersCluster}
	return nil
}
