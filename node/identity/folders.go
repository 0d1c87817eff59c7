package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/steledb/stele/internal/vfs"
)

// dataFolder is one data folder given to the node.
type dataFolder struct {
	fs    vfs.FS
	path  string
	ident *Identity // nil if there is no identity file
	blobs bool      // blobs/ holds data
	raft  bool      // it holds a Raft log
}

// Folders are the data folders of a node, checked to belong together. It is not safe for concurrent
// use.
type Folders struct {
	Identity // Folder is empty
	dirs     []dataFolder
}

// Inspect checks the data folders, in any order, and changes nothing. The error names the folder
// that does not belong to the others, or is missing.
func Inspect(dataDirs []string) (*Folders, error) { return InspectFS(vfs.OS(), dataDirs) }

// InspectFS is Inspect on another file system, on which the result then writes.
func InspectFS(fsys vfs.FS, dataDirs []string) (*Folders, error) {
	all := &Folders{}
	for _, path := range dataDirs {
		d, err := inspectFolder(fsys, path)
		if err != nil {
			return nil, fmt.Errorf("data folder %s: %w", path, err)
		}
		all.dirs = append(all.dirs, d)
	}
	if err := all.checkDistinct(); err != nil {
		return nil, err
	}
	if err := all.checkOwner(); err != nil {
		return nil, err
	}
	if all.Fresh() || all.Founding {
		return all, all.checkUnused()
	}
	return all, all.checkComplete()
}

// BlobFolder returns the folder of the block store in a data folder.
func BlobFolder(dataDir string) string { return filepath.Join(dataDir, "blobs") }

// BlobFolders returns the folder of the block store in each data folder.
func BlobFolders(dataDirs []string) []string {
	folders := make([]string, len(dataDirs))
	for i, d := range dataDirs {
		folders[i] = BlobFolder(d)
	}
	return folders
}

func inspectFolder(fsys vfs.FS, path string) (dataFolder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return dataFolder{}, err
	}
	d := dataFolder{fs: fsys, path: abs}
	if d.raft, err = hasLog(fsys, abs); err != nil {
		return d, err
	}
	if d.blobs, err = holdsFiles(fsys, BlobFolder(abs)); err != nil {
		return d, err
	}
	b, err := vfs.ReadFile(fsys, filepath.Join(abs, file))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d.ident, err = decode(b, filepath.Join(abs, file))
	return d, err
}

// hasLog reports whether a data folder holds a Raft log.
func hasLog(fsys vfs.FS, path string) (bool, error) {
	_, _, err := fsys.Stat(filepath.Join(path, raftFolder, "raft.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// holdsFiles reports whether name is a non-empty file, or a directory with one below it.
func holdsFiles(fsys vfs.FS, name string) (bool, error) {
	names, notDir := fsys.ReadDir(name)
	if notDir != nil {
		size, _, err := fsys.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, err
		case !errors.Is(notDir, syscall.ENOTDIR):
			return false, notDir
		}
		return size > 0, nil
	}
	for _, child := range names {
		if found, err := holdsFiles(fsys, filepath.Join(name, child)); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// checkDistinct rejects a folder that was given twice.
func (f *Folders) checkDistinct() error {
	for i, a := range f.dirs {
		for _, b := range f.dirs[:i] {
			same := a.path == b.path || vfs.SameFile(a.fs, a.path, b.path)
			if same || a.ident != nil && b.ident != nil && a.ident.Folder == b.ident.Folder {
				return fmt.Errorf("data folders %s and %s are the same folder, or one is a copy: give it once", b.path, a.path)
			}
		}
	}
	return nil
}

// checkOwner finds the node that the folders belong to, and rejects folders of other nodes. A new
// node gets an id.
func (f *Folders) checkOwner() error {
	var owner *dataFolder
	for i := range f.dirs {
		d := &f.dirs[i]
		switch {
		case d.ident == nil && (d.blobs || d.raft):
			return fmt.Errorf("data folder %s holds data but no file %q, so its node is unknown: "+
				"give the right folder, or put the file back", d.path, file)
		case d.ident == nil:
			continue
		case owner != nil && !owner.ident.sameNode(d.ident):
			return fmt.Errorf("data folder %s belongs to node %s of cluster %s, and %s to node %s of cluster %s: "+
				"give the folders of one node only", owner.path, owner.ident.Node, owner.ident.clusterText(), d.path, d.ident.Node, d.ident.clusterText())
		}
		if owner == nil || owner.ident.older(d.ident) {
			owner = d
		}
	}
	if owner == nil {
		f.Identity = Identity{Format: format, Node: "n" + randomHex(8)}
		return nil
	}
	f.Identity = *owner.ident
	f.Format, f.Folder = format, ""
	return nil
}

// sameNode reports whether both belong to one node. After an interrupted write only one of them may
// name the cluster.
func (i *Identity) sameNode(o *Identity) bool {
	return i.Node == o.Node && (i.Cluster == o.Cluster || i.Fresh() || o.Fresh())
}

func (i *Identity) clusterText() string {
	if i.Fresh() {
		return "(none yet)"
	}
	return i.Cluster
}

// older reports whether i was written before o. Version 1 had no revisions.
func (i *Identity) older(o *Identity) bool {
	switch {
	case i.Revision != o.Revision:
		return i.Revision < o.Revision
	case i.Founding != o.Founding:
		return i.Founding
	}
	return len(i.Folders) < len(o.Folders)
}

// checkUnused checks the folders of a node that has never served: there is nothing to lose, and
// none can be missing.
func (f *Folders) checkUnused() error {
	logs := ""
	for _, d := range f.dirs {
		switch {
		case d.blobs:
			return fmt.Errorf("data folder %s holds blobs but the lock service's log was never completed: give all folders of the node", d.path)
		case d.raft && f.Fresh():
			return fmt.Errorf("data folder %s holds a lock service's log, but its node belongs to no cluster: give all folders of the node", d.path)
		case d.raft:
			logs = d.ident.Folder
		}
	}
	if f.Founding && (logs != "" || f.byID(f.Raft) == nil) {
		f.Raft = logs // the log's actual place takes precedence
	}
	return nil
}

// checkComplete rejects a list of folders that lacks one of the node, or the node's Raft log.
func (f *Folders) checkComplete() error {
	var missing []string
	for _, d := range f.dirs {
		if d.ident == nil {
			continue
		}
		for _, ref := range d.ident.Folders { // a folder may have been added by an interrupted start
			if !slices.Contains(missing, ref.Path) && f.byID(ref.ID) == nil {
				missing = append(missing, ref.Path)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("node %s of cluster %s also has the data folder %s, which was not given or is now empty: "+
			"give all its folders, and check that their disks are mounted", f.Node, f.Cluster, strings.Join(missing, " and "))
	}
	return f.checkLog()
}

// checkLog rejects a voter without its Raft log, and a log in a folder where none belongs.
func (f *Folders) checkLog() error {
	holder := f.byID(f.Raft)
	if f.Raft != "" && holder == nil {
		return fmt.Errorf("no data folder of node %s has the id %s, which is that of the lock service's log", f.Node, f.Raft)
	}
	if holder != nil && !holder.raft && !f.RaftNew {
		return fmt.Errorf("the lock service's log is missing from data folder %s: without it the blobs of node %s "+
			"of cluster %s cannot be identified; restore %s from a copy, or give empty folders to start as a new node",
			holder.path, f.Node, f.Cluster, filepath.Join(holder.path, raftFolder))
	}
	for _, d := range f.dirs {
		switch {
		case !d.raft || d.ident.Folder == f.Raft || d.ident.Folder == f.RaftAside:
		case holder == nil:
			return fmt.Errorf("data folder %s holds a lock service's log, but node %s is no voter of cluster %s", d.path, f.Node, f.Cluster)
		default:
			return fmt.Errorf("data folder %s holds a lock service's log, but that of node %s is in %s", d.path, f.Node, holder.path)
		}
	}
	return nil
}

func (f *Folders) byID(id string) *dataFolder {
	for i := range f.dirs {
		if d := &f.dirs[i]; id != "" && d.ident != nil && d.ident.Folder == id {
			return d
		}
	}
	return nil
}

// Write makes the identity durable in all folders. New folders come first: a folder that is listed
// in other files but has no file of its own would count as missing.
func (f *Folders) Write() error {
	f.Folders = nil
	f.Revision++
	if f.Founding && f.Raft == "" {
		f.Raft = f.dirs[0].folderID()
	}
	var order []*dataFolder
	for i := range f.dirs {
		d := &f.dirs[i]
		f.Folders = append(f.Folders, folderRef{ID: d.folderID(), Path: d.path})
		if d.ident.Format == 0 {
			order = slices.Insert(order, 0, d)
		} else {
			order = append(order, d)
		}
	}
	slices.SortFunc(f.Folders, func(a, b folderRef) int { return strings.Compare(a.ID, b.ID) })
	for _, d := range order {
		if err := d.write(f.Identity); err != nil {
			return fmt.Errorf("data folder %s: write %s: %w", d.path, file, err)
		}
	}
	return nil
}

// folderID returns the folder's id; it assigns one if there is none.
func (d *dataFolder) folderID() string {
	if d.ident == nil {
		d.ident = &Identity{Folder: randomHex(8)}
	}
	return d.ident.Folder
}
