// SPDX-License-Identifier: MIT

package fileserver

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestStaysInside requests files outside the directory, and hidden ones.
func TestStaysInside(t *testing.T) {
	const secret = "a secret"
	outside := tree(t, map[string]string{"secret.txt": secret, "d/secret.txt": secret})
	dir := tree(t, map[string]string{
		"public.txt": "public", ".hidden": secret, ".git/config": secret, "sub/.env": secret, "sub/.ssh/id": secret,
		".well-known/security.txt": "public", ".well-known/.secret": secret, "sub/.well-known/x": secret, "..x": secret,
	})
	links := map[string]string{
		"out.txt": filepath.Join(outside, "secret.txt"), "outdir": outside, "up": "../" + filepath.Base(outside), "loop": "loop",
		"chain": "outdir/d/secret.txt", "in.txt": "public.txt", "self": "/proc/self/cwd",
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skipf("symbolic links: %v", err)
		}
	}
	addr := start(t, dir, Options{List: true})
	up := strings.Repeat("../", 12) + outside[1:] + "/secret.txt"
	base := "../" + filepath.Base(outside) + "/secret.txt"
	for _, path := range []string{
		"out.txt", "outdir/secret.txt", "outdir/", "up/secret.txt", "chain", "loop", "self/", "self/go.mod",
		up, base, strings.ReplaceAll(up, "/", "%2f"), strings.ReplaceAll(base, "..", "%2e%2e"), strings.ReplaceAll(base, "../", "..%2F"), "sub/" + base, "sub/../" + base,
		strings.ReplaceAll(base, "/", `\`), strings.ReplaceAll(base, "/", "%5c"), "..%00/secret.txt", "public.txt%00.html", "public.txt%00", "%00", "%c0%ae%c0%ae/secret.txt", "%252e%252e/secret.txt",
		"/" + outside + "/secret.txt", "//" + filepath.Base(outside) + "/secret.txt", "public.txt/../../" + filepath.Base(outside) + "/secret.txt",
		".hidden", "%2ehidden", ".git/config", ".git/", "sub/.env", "sub/%2eenv", "sub/.ssh/id", "sub/.ssh/../.env", ".well-known/.secret", "sub/.well-known/x", "..x", "./.hidden", "x/../.hidden",
	} {
		got := raw(t, addr, "GET /"+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 404 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Contains(got, secret) {
			t.Errorf("%s: %.200q", path, got)
		}
	}
	for path, want := range map[string]string{
		"in.txt": "public", "sub/../public.txt": "public", ".well-known/security.txt": "public", "..%2fpublic.txt": "public",
	} {
		if got := raw(t, addr, "GET /"+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n"+want) {
			t.Errorf("%s: %.200q", path, got)
		}
	}
	if list := ask(t, addr, "GET", "/", nil).body; strings.Contains(list, ".hidden") || strings.Contains(list, ".git") || !strings.Contains(list, ".well-known") || !strings.Contains(list, "public.txt") {
		t.Errorf("list %s", list)
	}
	if a := ask(t, start(t, dir, Options{Dotfiles: true}), "GET", "/sub/.env", nil); a.status != 200 || a.body != secret {
		t.Errorf("a dotfile that is allowed: %+v", a)
	}
}

// TestRace exchanges a directory with a link to outside while files below are requested.
func TestRace(t *testing.T) {
	const secret = "a secret"
	outside := tree(t, map[string]string{"f.txt": secret})
	dir := tree(t, map[string]string{"d/f.txt": "public"})
	d, link := filepath.Join(dir, "d"), filepath.Join(dir, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Skipf("symbolic links: %v", err)
	}
	addr := start(t, dir, Options{})
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(d, d+"2")
			os.Rename(link, d)
			os.Rename(d, link)
			os.Rename(d+"2", d)
		}
	}()
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		if a := ask(t, addr, "GET", "/d/f.txt", nil); a.body == secret || a.status == 200 && a.body != "public" {
			t.Fatalf("%+v", a)
		}
	}
	close(stop)
	<-done
}

func TestDirectories(t *testing.T) {
	dir := tree(t, map[string]string{"a<b>&\"'.txt": "", "javascript:alert(1)": "", "sub/x": "", "with/index.html": "index", "odd/index.html/x": ""})
	addr := start(t, dir, Options{})
	for _, path := range []string{"/", "/sub/", "/odd/"} {
		if a := ask(t, addr, "GET", path, nil); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	addr = start(t, dir, Options{List: true})
	a := ask(t, addr, "GET", "/", nil)
	for _, want := range []string{"a&lt;b&gt;&amp;&#34;&#39;.txt</a>", `href="a%3Cb%3E&amp;%22%27.txt"`, `href="./javascript:alert%281%29"`, `href="sub/"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("%s is missing in\n%s", want, a.body)
		}
	}
	if a.header.Get("Content-Security-Policy") == "" || strings.Contains(a.body, "<b>") || strings.Contains(a.body, "../") {
		t.Errorf("%v\n%s", a.header, a.body)
	}
	if a := ask(t, addr, "GET", "/sub/", nil); !strings.Contains(a.body, `href="../"`) {
		t.Error(a.body)
	}
	if a := ask(t, addr, "GET", "/javascript:alert(1)/", nil); a.header.Get("Location") != "../javascript:alert%281%29" {
		t.Errorf("%v", a.header)
	}
	if a := ask(t, addr, "POST", "/", nil); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %+v", a)
	}
	if runtime.GOOS != "windows" && os.Geteuid() != 0 {
		os.Chmod(filepath.Join(dir, "sub"), 0)
		if a := ask(t, addr, "GET", "/sub/x", nil); a.status != 403 {
			t.Errorf("forbidden: %d", a.status)
		}
		os.Chmod(filepath.Join(dir, "sub"), 0o755)
	}
}
