package node

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/security/audit"
)

// auditFolder is below the folder of keys.
const auditFolder = "audit"

// openAudit opens the node's audit log.
func (n *Node) openAudit(node string) error {
	if n.cfg.Security == "" {
		return nil
	}
	log := n.log.With("part", "audit")
	cfg := audit.Config{Dir: filepath.Join(n.cfg.Security, auditFolder), Node: node, Logger: log}
	var err error
	if n.cfg.AuditTo != "" {
		if cfg.Sink, err = audit.OpenSink(n.cfg.AuditTo); err != nil {
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
	n.authz.Audit = &authz.AuditLog{To: to, Log: log, IsAdmin: n.authz.AdministersCluster}
	return nil
}
