mkdir photos && cd photos
echo one > "IMG_20240131_142501.jpg"
echo two > "2024-01-31 14.25.01.jpg"
echo three > "DSC31012024-142501.JPG"
echo four > "IMG_20231224_180000.jpg"
echo five > "DSC05112023-070809.JPG"
echo six > "notes.txt"
echo seven > "IMG_2023.jpg"
