// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

const testDirectory = "shop_data-db-0_pvc-1"

func newDirectories(t *testing.T) *directories {
	t.Helper()
	d, err := openDirectories(filepath.Join(t.TempDir(), "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (error %v), want %q", path, got, err, want)
	}
}

func wantListing(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != want {
		t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
	}
}

func makeDirectory(t *testing.T, d *directories, name string) {
	t.Helper()
	if made, err := d.make(name); err != nil || !made {
		t.Fatalf("make %s: made %t, error %v", name, made, err)
	}
}

func TestDirectoryName(t *testing.T) {
	long := strings.Repeat("c", 253)
	for _, tt := range []struct{ namespace, claim, volume, want string }{
		{"shop", "data-db-0", "pvc-1", testDirectory},
		{"shop", "data.db", "pvc-1", "shop_data.db_pvc-1"},
		{strings.Repeat("n", 63), long, "pvc-1", strings.Repeat("n", 63) + "_" + strings.Repeat("c", maxDirectoryName-70) + "_pvc-1"},
		{"shop", "data", long, ""},
		{"", "data", "pvc-1", ""},
		{"..", "data", "pvc-1", ""},
		{"shop", "../../etc", "pvc-1", ""},
		{"shop", "data", "pvc-1/..", ""},
		{"shop", "a_b", "pvc-1", ""},
		{".trash-shop", "data", "pvc-1", ""},
	} {
		got, err := directoryName(tt.namespace, tt.claim, tt.volume)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("directoryName(%q, %q, %q) = %q, %v, want %q", tt.namespace, tt.claim, tt.volume, got, err, tt.want)
		}
		if len(trashPrefix+got) > 255 {
			t.Errorf("directoryName(%q, %q, %q) is too long for the trash: %d bytes", tt.namespace, tt.claim, tt.volume, len(got))
		}
		if tt.want != "" && volumeOf(got) != tt.volume {
			t.Errorf("volumeOf(%q) = %q, want %q", got, volumeOf(got), tt.volume)
		}
	}
}

func TestDirectoryOf(t *testing.T) {
	d := newDirectories(t)
	for path, want := range map[string]string{
		d.pathOf(testDirectory):                           testDirectory,
		d.path + "/" + testDirectory + "/":                testDirectory,
		d.pathOf("shop_data-db-1_pvc-2"):                  "", // Another volume's.
		d.path:                                            "",
		d.path + "/" + testDirectory + "/sub_dir_pvc-1":   "",
		d.path + "/x/sub_dir_pvc-1":                       "",
		d.path + "/../" + testDirectory:                   "",
		d.path + "/" + testDirectory + "/../../x_y_pvc-1": "",
		d.path + "/" + trashPrefix + testDirectory:        "",
		"/etc":                      "",
		"/":                         "",
		"relative/" + testDirectory: "",
		filepath.Dir(d.path) + "/volumes2/" + testDirectory:  "",
		filepath.Dir(d.path) + "/volumes/.." + testDirectory: "",
		"": "",
	} {
		got, err := d.directoryOf(path, "pvc-1")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("directoryOf(%q) = %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestOpenClosesDirectoryToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "volumes")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := openDirectories(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	wantMode(t, path, fs.ModeDir|0o700)
}

func TestMakeLetsAnyUserWrite(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, testDirectory)
	wantMode(t, d.pathOf(testDirectory), fs.ModeDir|0o777)
	wantListing(t, d.path, testDirectory)
}

func TestMakeKeepsWhatIsThere(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, testDirectory)
	writeFile(t, d.pathOf(testDirectory)+"/row", "precious")
	if err := os.Chmod(d.pathOf(testDirectory), 0o700); err != nil {
		t.Fatal(err)
	}
	if made, err := d.make(testDirectory); err != nil || made {
		t.Fatalf("second make: made %t, error %v", made, err)
	}
	wantMode(t, d.pathOf(testDirectory), fs.ModeDir|0o700)
	wantContent(t, d.pathOf(testDirectory)+"/row", "precious")
}

func TestMakeAfterCrash(t *testing.T) {
	d := newDirectories(t)
	if err := os.Mkdir(d.pathOf(freshPrefix+testDirectory), 0o700); err != nil {
		t.Fatal(err)
	}
	makeDirectory(t, d, testDirectory)
	wantMode(t, d.pathOf(testDirectory), fs.ModeDir|0o777)
	wantListing(t, d.path, testDirectory)
}

func TestMakeRefusesWhatIsNoDirectory(t *testing.T) {
	d := newDirectories(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, d.pathOf(testDirectory)); err != nil {
		t.Fatal(err)
	}
	if made, err := d.make(testDirectory); err == nil || made {
		t.Errorf("make over a symbolic link: made %t, error %v", made, err)
	}
	wantListing(t, outside)
}

func TestRemoveFollowsNoLink(t *testing.T) {
	d := newDirectories(t)
	outside := t.TempDir()
	writeFile(t, outside+"/file", "theirs")
	makeDirectory(t, d, testDirectory)
	makeDirectory(t, d, "shop_data-db-1_pvc-2")
	writeFile(t, d.pathOf("shop_data-db-1_pvc-2")+"/file", "the other's")
	writeFile(t, d.pathOf(testDirectory)+"/deep/er/file", "ours")
	for name, target := range map[string]string{
		"dir": outside, "file": outside + "/file", "deep/up": "../../..", "deep/other": "../../shop_data-db-1_pvc-2", "loop": ".",
	} {
		if err := os.Symlink(target, d.pathOf(testDirectory)+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.remove(testDirectory); err != nil {
		t.Fatal(err)
	}
	wantListing(t, d.path, "shop_data-db-1_pvc-2")
	wantContent(t, d.pathOf("shop_data-db-1_pvc-2")+"/file", "the other's")
	wantContent(t, outside+"/file", "theirs")
}

func TestRemoveReplacedByLink(t *testing.T) {
	for _, target := range []string{"/outside", "shop_data-db-1_pvc-2"} {
		t.Run(filepath.Base(target), func(t *testing.T) {
			d := newDirectories(t)
			makeDirectory(t, d, "shop_data-db-1_pvc-2")
			writeFile(t, d.pathOf("shop_data-db-1_pvc-2")+"/file", "the other's")
			outside := t.TempDir()
			writeFile(t, outside+"/file", "theirs")
			if target == "/outside" {
				target = outside
			}
			if err := os.Symlink(target, d.pathOf(testDirectory)); err != nil {
				t.Fatal(err)
			}
			if err := d.remove(testDirectory); err != nil {
				t.Fatal(err)
			}
			wantListing(t, d.path, "shop_data-db-1_pvc-2")
			wantContent(t, d.pathOf("shop_data-db-1_pvc-2")+"/file", "the other's")
			wantContent(t, outside+"/file", "theirs")
		})
	}
}

func TestRemoveTwice(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, testDirectory)
	for range 2 {
		if err := d.remove(testDirectory); err != nil {
			t.Fatal(err)
		}
	}
	wantListing(t, d.path)
}

func TestRemoveGoesOnAfterCrash(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, testDirectory)
	writeFile(t, d.pathOf(testDirectory)+"/file", "ours")
	if err := d.discard(testDirectory); err != nil { // And here the process dies.
		t.Fatal(err)
	}
	wantListing(t, d.path, trashPrefix+testDirectory)
	if err := d.remove(testDirectory); err != nil {
		t.Fatal(err)
	}
	wantListing(t, d.path)
}

func TestEmptyTrash(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, "shop_data-db-1_pvc-2")
	for _, name := range []string{"shop_data-db-0_pvc-1", "shop_data-db-2_pvc-3"} {
		makeDirectory(t, d, name)
		writeFile(t, d.pathOf(name)+"/deep/file", "ours")
		if err := d.discard(name); err != nil {
			t.Fatal(err)
		}
	}
	d.emptyTrash(t.Context())
	wantListing(t, d.path, "shop_data-db-1_pvc-2")
}

func TestRemoveRefusesMounts(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, testDirectory)
	writeFile(t, d.pathOf(testDirectory)+"/mnt/file", "of another disk")
	mounted := d.real + "/" + testDirectory + "/mnt"
	d.mounts = func(path string) ([]string, error) {
		if path != d.real+"/"+testDirectory {
			t.Errorf("looked for mounts below %s", path)
		}
		return []string{mounted}, nil
	}
	err := d.remove(testDirectory)
	if err == nil || !strings.Contains(err.Error(), "umount "+mounted) {
		t.Errorf("remove with a mount below: %v, want an error that tells to unmount", err)
	}
	d.mounts = func(string) ([]string, error) { return nil, errors.New("no proc") }
	if err := d.remove(testDirectory); err == nil {
		t.Error("remove without knowing the mounts succeeded")
	}
	wantContent(t, d.pathOf(testDirectory)+"/mnt/file", "of another disk")

	// The mount comes between the rename and the deletion.
	d.mounts = func(path string) ([]string, error) {
		if strings.HasPrefix(filepath.Base(path), trashPrefix) {
			return []string{path + "/mnt"}, nil
		}
		return nil, nil
	}
	if err := d.remove(testDirectory); err == nil {
		t.Error("remove with a late mount below succeeded")
	}
	d.emptyTrash(t.Context())
	wantContent(t, d.pathOf(trashPrefix+testDirectory)+"/mnt/file", "of another disk")
	d.mounts = mountsBelow
	if err := d.remove(testDirectory); err != nil {
		t.Error(err)
	}
	wantListing(t, d.path)
}

func TestMountsBelow(t *testing.T) {
	points, err := mountsBelow("/proc")
	if err != nil || !slices.Contains(points, "/proc") {
		t.Errorf("mountsBelow(/proc) = %q, %v, want /proc itself in it", points, err)
	}
	points, err = mountsBelow(t.TempDir())
	if err != nil || len(points) > 0 {
		t.Errorf("mountsBelow of an ordinary directory = %q, %v", points, err)
	}
}

func TestDropUnused(t *testing.T) {
	d := newDirectories(t)
	for _, name := range []string{"a_used_pvc-1", "a_unused_pvc-2", "a_full_pvc-3"} {
		makeDirectory(t, d, name)
	}
	writeFile(t, d.pathOf("a_full_pvc-3")+"/row", "precious")
	for _, name := range []string{"lost+found", ".new-a_half_pvc-4", ".trash-a_x_pvc-5"} {
		if err := os.Mkdir(d.pathOf(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, d.pathOf("a_file_pvc-6"), "not a directory")
	if err := d.dropUnused(sets.New("pvc-1").Has); err != nil {
		t.Fatal(err)
	}
	wantListing(t, d.path, ".trash-a_x_pvc-5", "a_file_pvc-6", "a_full_pvc-3", "a_used_pvc-1", "lost+found")
}

func TestRemedy(t *testing.T) {
	d := newDirectories(t)
	for cause, want := range map[error]string{
		syscall.ENOSPC: "free some space", syscall.EDQUOT: "free some space", syscall.EROFS: "read-only", syscall.EACCES: "must be able to write",
	} {
		err := d.remedy(&fs.PathError{Op: "mkdirat", Path: "x", Err: cause})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), d.path) {
			t.Errorf("remedy for %v: %v, want %q and the directory in it", cause, err, want)
		}
	}
	if err := d.remedy(errors.New("other")); err.Error() != "other" {
		t.Errorf("an unknown error became %q", err)
	}
}
