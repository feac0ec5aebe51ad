// SPDX-License-Identifier: MIT

package ufile

// XattrFlags say when [File.Setxattr] fails.
type XattrFlags int

// Flags of Setxattr.
const (
	XattrCreate  XattrFlags = 1 // fail with fs.ErrExist where the attribute exists
	XattrReplace XattrFlags = 2 // fail with ErrNoXattr where it does not
)

// Getxattr returns an extended attribute of the file, such as "user.comment".
//
// This and the other calls about extended attributes are plain system calls.
// Errors are *fs.PathError with the name of the call as the Op. They match
// [ErrNoXattr] where there is no such attribute, and errors.ErrUnsupported
// where the file system, or the operating system (all but Linux), has none.
func (f *File) Getxattr(attr string) (value []byte, err error) {
	err = f.hold("fgetxattr", func(fd int) error {
		value, err = getxattr(inode{FD: fd}, attr)
		return err
	})
	return value, err
}

// Setxattr creates or replaces an extended attribute; see [File.Getxattr].
// value is the caller's again when it returns.
func (f *File) Setxattr(attr string, value []byte, flags XattrFlags) error {
	return f.hold("fsetxattr", func(fd int) error { return setxattr(inode{FD: fd}, attr, value, flags) })
}

// Listxattr returns the names of the extended attributes, in no particular
// order; see [File.Getxattr]. Those that the caller may not see are left out.
func (f *File) Listxattr() (attrs []string, err error) {
	err = f.hold("flistxattr", func(fd int) error {
		attrs, err = listxattr(inode{FD: fd})
		return err
	})
	return attrs, err
}

// Removexattr removes an extended attribute; see [File.Getxattr].
func (f *File) Removexattr(attr string) error {
	return f.hold("fremovexattr", func(fd int) error { return removexattr(inode{FD: fd}, attr) })
}

// Getxattr returns an extended attribute of what a name leads to; see
// [File.Getxattr].
func Getxattr(name, attr string) ([]byte, error) {
	value, err := getxattr(inode{Name: name}, attr)
	return value, pathError("getxattr", name, err)
}

// Setxattr creates or replaces an extended attribute of what a name leads to;
// see [File.Setxattr].
func Setxattr(name, attr string, value []byte, flags XattrFlags) error {
	return pathError("setxattr", name, setxattr(inode{Name: name}, attr, value, flags))
}

// Listxattr returns the names of the extended attributes of what a name leads
// to; see [File.Listxattr].
func Listxattr(name string) ([]string, error) {
	attrs, err := listxattr(inode{Name: name})
	return attrs, pathError("listxattr", name, err)
}

// Removexattr removes an extended attribute of what a name leads to; see
// [File.Removexattr].
func Removexattr(name, attr string) error {
	return pathError("removexattr", name, removexattr(inode{Name: name}, attr))
}
