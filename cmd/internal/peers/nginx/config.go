// SPDX-License-Identifier: MIT

// Package nginx runs nginx as a server of the files below a directory, for comparison with ours.
package nginx

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// config makes nginx serve the directory to which prefix/www links, with the settings that its
// documentation recommends for static files. As in the other servers, there is no access log, and
// connections are kept alive as long.
const config = `daemon off;
worker_processes %[2]d;
pid nginx.pid;
error_log stderr crit;
%[3]s
events { worker_connections 4096; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000000;
	keepalive_timeout 600;
	types { image/jpeg jpg; }
	default_type application/octet-stream;
	client_body_temp_path tmp;
	proxy_temp_path tmp;
	fastcgi_temp_path tmp;
	uwsgi_temp_path tmp;
	scgi_temp_path tmp;
	server {
		listen %[1]s;
		root www;
	}
}
`

// prepare creates nginx's directory, and returns the name of its configuration there.
func prepare(prefix, files, addr string, workers int) (string, error) {
	files, err := filepath.Abs(files)
	if err != nil {
		return "", err
	}
	if err := os.Symlink(files, filepath.Join(prefix, "www")); err != nil {
		return "", err
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // Otherwise its workers may not have access to our directory.
	}
	name := filepath.Join(prefix, "nginx.conf")
	return name, os.WriteFile(name, fmt.Appendf(nil, config, addr, workers, user), 0o600)
}

// Name is the engine's name in tables and result files.
const Name = "nginx"

// ErrMissing is matched by errors if nginx is not installed.
var ErrMissing = errors.New("nginx is not installed (Debian: apt-get install nginx-light)")

// find returns the program's path and version. The program is often in a directory that is only in
// root's PATH.
func find() (path, version string, err error) {
	if path, err = exec.LookPath(Name); err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + Name); err != nil {
			return "", "", ErrMissing
		}
	}
	out, err := exec.Command(path, "-v").CombinedOutput()
	if err != nil {
		return "", "", err
	}
	return path, strings.TrimPrefix(strings.TrimSpace(string(out)), "nginx version: "), nil
}
