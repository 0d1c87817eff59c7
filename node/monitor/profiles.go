package monitor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
)

// ProfilesOnHTTP is the value of Config.Profiles that adds profiles to the HTTP port without TLS.
const ProfilesOnHTTP = "http"

// profiles returns the handler of Go's profiles. They show the program and no data, but take processor time and memory.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+profilesPath, pprof.Index)
	mux.HandleFunc("GET "+profilesPath+"profile", pprof.Profile)
	mux.HandleFunc("GET "+profilesPath+"trace", pprof.Trace)
	return few(mux)
}

// serveProfiles serves profiles on the socket of Config.Profiles, if it names one.
func (sv *Service) serveProfiles() error {
	path := sv.Profiles
	if path == "" || path == ProfilesOnHTTP {
		return nil
	}
	l, err := listenPrivate(path)
	if err != nil {
		return fmt.Errorf("listen for profiles: %w", err)
	}
	sv.profiles = &http.Server{Handler: profiles()}
	bound(sv.profiles, 0, sv.Log, sv.Refused)
	sv.Background.Go(func() {
		if err := sv.profiles.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			sv.Log.Error("profile server failed", "err", err)
		}
	})
	return nil
}

// listenPrivate listens on a socket that only this process's user may open. It replaces a socket left by a killed process, and no other file.
func listenPrivate(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("another process listens on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// First in a private directory: between bind and chmod other users could open it.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".stele-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	hidden := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Link(hidden, path) // fails if a file of that name exists
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &privateListener{l, path}, nil
}

// privateListener removes its socket when it is closed.
type privateListener struct {
	net.Listener
	path string
}

func (l *privateListener) Close() error {
	err := l.Listener.Close()
	if gone := os.Remove(l.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
